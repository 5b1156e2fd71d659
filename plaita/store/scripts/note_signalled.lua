-- The steps that run were told to stop, because a cancel is asked for (DECISIONS 13). The first time stands.
-- KEYS for each execution: row, fence. ARGV its token
-- ok: how many rows say so now
-- include: time
local noted = 0
for i = 1, #ARGV do
  local row = KEYS[2 * i - 1]
  if redis.call('GET', KEYS[2 * i]) == ARGV[i] and redis.call('HGET', row, 'status') == 'running' then
    redis.call('HSETNX', row, 'cancel_signalled_at', text(now_ms()))
    noted = noted + 1
  end
end
return {'ok', noted}

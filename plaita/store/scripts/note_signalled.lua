-- The steps that run were told to stop, because a cancel is asked for (DECISIONS 13). The first time stands.
-- KEYS for each execution: row, fence, fencegen. ARGV its token
-- ok: how many rows say so now
-- include: time
local noted = 0
for i = 1, #ARGV do
  local row = KEYS[3 * i - 2]
  local fence = redis.call('MGET', KEYS[3 * i - 1], KEYS[3 * i])
  local ours = fence[1] == ARGV[i] and fence[2] == string.match(ARGV[i], '^%d+')
  if ours and redis.call('HGET', row, 'status') == 'running' then
    redis.call('HSETNX', row, 'cancel_signalled_at', text(now_ms()))
    noted = noted + 1
  end
end
return {'ok', noted}

-- Enable or disable a tenant; whoever writes a status says for which deployment it is meant (ledger T2).
-- KEYS 1 tenant statuses, 2 their epoch. ARGV 1 tenant, 2 status, 3 epoch or ''. ok: the status before, or ''
local before = redis.call('HGET', KEYS[1], ARGV[1])
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
if ARGV[3] ~= '' then
  redis.call('SET', KEYS[2], ARGV[3])
end
return {'ok', before or ''}

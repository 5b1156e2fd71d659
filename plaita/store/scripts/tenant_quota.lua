-- How many executions of a tenant may run at a time. KEYS 1 tenant quotas. ARGV 1 tenant, 2 quota, 0 for no limit
-- ok: what stood there before, or ''
local before = redis.call('HGET', KEYS[1], ARGV[1])
if ARGV[2] == '0' then
  redis.call('HDEL', KEYS[1], ARGV[1])
else
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
end
return {'ok', before or ''}

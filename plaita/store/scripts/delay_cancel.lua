-- KEYS 1 delayed, 2 bodies. ARGV 1 member. ok: was there '0'|'1'
local there = redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[1])
return {'ok', tostring(there)}

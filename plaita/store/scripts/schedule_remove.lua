-- Schedules that are no more. KEYS 1 schedules, 2 due set, 3 tenants that have schedules, 4.. history of each.
-- ARGV 1 tenant, then of each: id, member
-- ok: how many there were
local there = 0
for i = 4, #KEYS do
  local at = (i - 3) * 2
  there = there + redis.call('HDEL', KEYS[1], ARGV[at])
  redis.call('ZREM', KEYS[2], ARGV[at + 1])
  redis.call('DEL', KEYS[i])
end
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('SREM', KEYS[3], ARGV[1])
end
return {'ok', there}

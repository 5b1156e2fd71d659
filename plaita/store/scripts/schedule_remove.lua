-- Schedules that are no more. KEYS 1 schedules, 2 due set, 3.. history of each. ARGV of each: id, member
-- ok: how many there were
local there = 0
for i = 3, #KEYS do
  local at = (i - 3) * 2 + 1
  there = there + redis.call('HDEL', KEYS[1], ARGV[at])
  redis.call('ZREM', KEYS[2], ARGV[at + 1])
  redis.call('DEL', KEYS[i])
end
return {'ok', there}

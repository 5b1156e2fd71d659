-- KEYS 1 queue, 2 wake, 3 delayed, 4 dead letters, 5 parked tenants. ARGV 1 group, 2 min idle ms ('' none is counted),
--      3 most that are counted as claimable a stream
-- ok: {{name, length, pending, lag or -1} ...}, delayed, dead letters, age of the oldest pending entry ms (-1 none), parked,
--     claimable
-- include: time
-- include: group
-- include: parked
local streams, oldest, claimable = {}, nil, 0
for i = 1, 2 do
  local length = redis.call('XLEN', KEYS[i])
  local facts = group_facts(KEYS[i], ARGV[1])
  local pending, lag = 0, length
  if facts then
    pending, lag = facts.pending, facts.lag or -1
    if pending > 0 then
      local first = redis.call('XPENDING', KEYS[i], ARGV[1])[2]
      local ms = tonumber(string.match(first, '^%d+'))
      oldest = math.min(oldest or ms, ms)
      if ARGV[2] ~= '' then
        claimable = claimable + #redis.call('XPENDING', KEYS[i], ARGV[1], 'IDLE', ARGV[2], '-', '+', ARGV[3])
      end
    end
  end
  streams[i] = {KEYS[i], length, pending, lag}
end
local parked = 0
for _, tenant in ipairs(redis.call('SMEMBERS', KEYS[5])) do
  for _, letter in ipairs({'q', 'w'}) do
    parked = parked + redis.call('LLEN', parked_list(KEYS[5], letter, tenant))
  end
end
return {
  'ok', streams, redis.call('ZCARD', KEYS[3]), redis.call('XLEN', KEYS[4]), oldest and math.max(0, now_ms() - oldest) or -1,
  parked, claimable,
}

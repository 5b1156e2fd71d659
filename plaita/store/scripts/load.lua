-- One row as of one moment. KEYS 1 row, 2 lease, 3 cancel. ARGV 1 with results and state 0|1
-- ok: (nothing without a row) | fields, lease, cancel
local CHUNK = 1000
if ARGV[1] == '1' then
  local all = redis.call('HGETALL', KEYS[1])
  if #all == 0 then
    return {'ok'}
  end
  return {'ok', all, redis.call('GET', KEYS[2]), redis.call('GET', KEYS[3])}
end
local wanted, fields = {}, {}
for _, name in ipairs(redis.call('HKEYS', KEYS[1])) do
  local head = string.sub(name, 1, 2)
  if head ~= 'r:' and head ~= 's:' then
    wanted[#wanted + 1] = name
  end
end
if #wanted == 0 then
  return {'ok'}
end
for from = 1, #wanted, CHUNK do
  local to = math.min(from + CHUNK - 1, #wanted)
  local values = redis.call('HMGET', KEYS[1], unpack(wanted, from, to))
  for i = from, to do
    fields[#fields + 1] = wanted[i]
    fields[#fields + 1] = values[i - from + 1]
  end
end
return {'ok', fields, redis.call('GET', KEYS[2]), redis.call('GET', KEYS[3])}

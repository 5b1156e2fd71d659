-- One row as of one moment. A row that its indexes do not know is indexed again (ledger D4).
-- KEYS 1 row, 2 lease, 3 cancel, 4 index, 5 tombstone. ARGV 1 with results and state 0|1, 2 id, 3 ns, 4 tenant
-- ok: (nothing without a row) | fields, lease, cancel, indexed again 0|1. refused: wrong_type, tombstoned (when, why): a backup
--     brought the row back, which undoes no delete (D2)
-- include: indexed_again
local CHUNK = 1000
local kind = redis.call('TYPE', KEYS[1]).ok
if kind ~= 'hash' then
  return kind == 'none' and {'ok'} or {'refused', 'wrong_type', kind}
end
local tombstone = redis.call('HGET', KEYS[5], ARGV[4])
if tombstone then
  return {'refused', 'tombstoned', tombstone}
end

local function answer(fields)
  local healed = indexed_again(KEYS[1], KEYS[4], ARGV[2], ARGV[3])
  return {'ok', fields, redis.call('GET', KEYS[2]), redis.call('GET', KEYS[3]), healed}
end

if ARGV[1] == '1' then
  return answer(redis.call('HGETALL', KEYS[1]))
end
local wanted, fields = {}, {}
for _, name in ipairs(redis.call('HKEYS', KEYS[1])) do
  local head = string.sub(name, 1, 2)
  if head ~= 'r:' and head ~= 's:' then
    wanted[#wanted + 1] = name
  end
end
for from = 1, #wanted, CHUNK do
  local to = math.min(from + CHUNK - 1, #wanted)
  local values = redis.call('HMGET', KEYS[1], unpack(wanted, from, to))
  for i = from, to do
    fields[#fields + 1] = wanted[i]
    fields[#fields + 1] = values[i - from + 1]
  end
end
return answer(fields)

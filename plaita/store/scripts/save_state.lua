-- Save a whole execution from outside of a step (ledger L2): under the token of who holds it, or, where nobody holds it,
-- as a generation of its own, so that whoever held or read it before can write no more.
-- KEYS 1 row, 2 lease, 3 fence, 4 fencegen, 5 tombstone, 6 index, 7 expiry, 8 index of the new status
-- ARGV 1 id, 2 tenant, 3 ns, 4 token or '', 5 fence as it was read, or '-' for one who has read nothing, 6 nonce, 7 status,
--      8 retention ms, 9 ttl of a terminal row ms (0 none), 10 time it began ms or '', 11 ended ms or '',
--      12 number n of names to drop, 13..12+n those, then the row's fields
-- ok: the fence that this save stands under. refused: wrong_type, tombstoned, leased (lease), fence (the one there),
--     terminal (status), no_row
-- include: lease
-- include: time
-- include: wait_end
local kind = redis.call('TYPE', KEYS[1]).ok
if kind ~= 'hash' and kind ~= 'none' then
  return {'refused', 'wrong_type', kind}
end
local tombstone = redis.call('HGET', KEYS[5], ARGV[2])
if tombstone then
  return {'refused', 'tombstoned', tombstone}
end
local row = redis.call('HMGET', KEYS[1], 'status', 'created_at', 'wait', 'step', 'started_at', 'ended_at')
local flags = redis.call('MGET', KEYS[2], KEYS[3], KEYS[4])
local lease, fence, generation = flags[1], flags[2] or '', flags[3]
local status, token = ARGV[7], ARGV[4]
local again = token == '' and string.match(fence, '^%d+:(.*)$') == ARGV[6]

if not again then
  if lease and (token == '' or not lease_is(lease, token)) then
    return {'refused', 'leased', lease}
  end
  local expected = token ~= '' and token or ARGV[5]
  if expected ~= '-' and fence ~= expected then
    return {'refused', 'fence', fence}
  end
  if fence ~= '' and expected ~= '-' and generation ~= string.match(fence, '^%d+') then
    return {'refused', 'fence', fence} -- row and fence came back from a backup: an old hand has no right to them
  end
  if token ~= '' and not row[1] then
    return {'refused', 'no_row'}
  end
end
if row[1] and TERMINAL[row[1]] and row[1] ~= status then
  return {'refused', 'terminal', row[1]}
end

local now = text(now_ms())
local created = row[2] or (ARGV[10] ~= '' and ARGV[10]) or now
local known = redis.call('HKEYS', KEYS[1])
local fields, kept = {}, {}
local function set(name, value)
  fields[#fields + 1] = name
  fields[#fields + 1] = value
  kept[name] = true
end
local first = 13 + tonumber(ARGV[12])
for i = first, #ARGV, 2 do
  set(ARGV[i], ARGV[i + 1])
end
set('status', status)
set('created_at', created)
set('last_update_time', now)
set('lost', '0')
set('lost_node', '')
if ARGV[10] ~= '' and not row[5] then
  set('started_at', ARGV[10])
end
local function blank_wait(id)
  set('wait', id)
  for _, name in ipairs({'woken', 'wake_data', 'wake_id'}) do
    set(name, '')
  end
end
if status == 'suspended' and (row[1] ~= 'suspended' or (row[3] or '') == '') then
  -- each wait has an id of its own, unique in the life of its execution
  local step = text((tonumber(row[4]) or 0) + 1)
  set('step', step)
  blank_wait(step)
  set('wait_since', now)
elseif status ~= 'suspended' and (row[3] or '') ~= '' then
  blank_wait('')
  unsubscribe(KEYS[1]) -- a timer that is left finds that nobody waits on it
end
if TERMINAL[status] then
  set('ended_at', ARGV[11] ~= '' and ARGV[11] or row[6] or now)
end

-- What the state does not name any more is gone from the row too: a save is the whole state.
local gone = {}
for _, name in ipairs(known) do
  local head = string.sub(name, 1, 2)
  if (head == 'r:' or head == 's:' or head == 't:') and not kept[name] then
    gone[#gone + 1] = name
  end
end
for i = 13, first - 1 do
  gone[#gone + 1] = ARGV[i]
end
for from = 1, #gone, 1000 do
  redis.call('HDEL', KEYS[1], unpack(gone, from, math.min(from + 999, #gone)))
end
for from = 1, #fields, 1000 do
  redis.call('HSET', KEYS[1], unpack(fields, from, math.min(from + 999, #fields)))
end

redis.call('ZADD', KEYS[6], created, ARGV[1])
if row[1] and row[1] ~= status then
  redis.call('ZREM', ARGV[3] .. ':execution:index:' .. row[1], ARGV[1])
end
redis.call('ZADD', KEYS[8], created, ARGV[1])
if token == '' and not again then
  fence = redis.call('INCR', KEYS[4]) .. ':' .. ARGV[6]
  redis.call('SET', KEYS[3], fence)
end
if TERMINAL[status] and tonumber(ARGV[9]) > 0 then
  redis.call('ZADD', KEYS[7], text(now + ARGV[8]), ARGV[1])
  for i = 1, 4 do
    if i ~= 2 then
      redis.call('PEXPIRE', KEYS[i], ARGV[9])
    end
  end
end
return {'ok', fence}

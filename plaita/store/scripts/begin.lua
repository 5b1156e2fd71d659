-- Take the lease of an execution for one carrier (ledger L1, L2, S14).
-- KEYS 1 row, 2 lease, 3 fence, 4 fencegen, 5 cancel, 6 index, 7 index of pending, 8 index of running, 9 tombstone,
--      10 flow versions, 11 flow meta (both of a foreign start's flow)
-- ARGV 1 id, 2 holder, 3 nonce, 4 ttl ms, 5 q|w, 6 entry id, 7 max lost, 8 tenant, 9 foreign 0|1, 10 flow, 11 version,
--      12 input
-- ok: see lib/begun. refused: tombstoned, no_row, wrong_type, flow_conflict (owner's flow), terminal (status), suspended,
--     leased (lease value), no_flow, no_version
-- include: begun
-- include: resolve
local row = redis.pcall('HMGET', KEYS[1], 'status', 'flow_id', 'next_node', 'lost', 'lost_node', 'attempts', 'created_at',
  'started_at')
if row.err then
  return {'refused', 'wrong_type', redis.call('TYPE', KEYS[1]).ok}
end
local tombstone = redis.call('HGET', KEYS[9], ARGV[8])
if tombstone then
  return {'refused', 'tombstoned', tombstone}
end
if row[1] and ARGV[9] == '1' and row[2] ~= ARGV[10] then
  return {'refused', 'flow_conflict', row[2] or ''}
end
if not row[1] and ARGV[9] == '0' then
  return {'refused', 'no_row'}
end
if row[1] and TERMINAL[row[1]] then
  return {'refused', 'terminal', row[1]}
end
if row[1] == 'suspended' then
  return {'refused', 'suspended'}
end
local lease = redis.call('GET', KEYS[2])
local before = held_before(lease)
if before and row[1] == 'running' then
  return begun(before, lease)
end
if lease and not before then -- ours over a row that is pending (it came back from a backup) is begun anew
  return {'refused', 'leased', lease}
end

local now = text(now_ms())
local changes = {'status', 'running', 'last_update_time', now}
local function set(name, value)
  changes[#changes + 1] = name
  changes[#changes + 1] = value
end
if not row[1] then
  local version, hash = resolve(KEYS[10], KEYS[11], ARGV[11])
  if not version then
    return hash
  end
  set('flow_id', ARGV[10])
  set('version', version)
  set('flow_hash', hash)
  set('tenant_id', ARGV[8])
  set('input', ARGV[12])
  set('created_at', now)
  set('first_enqueued_at', now)
end
local next_node = row[3] or ''
if not row[8] then
  set('started_at', now)
end
set('attempts', text((tonumber(row[6]) or 0) + 1))
set('lost', text(handed_out(row[4], row[5], next_node)))
set('lost_node', next_node)
if row[1] ~= 'running' then
  local created = row[7] or now
  redis.call('ZADD', KEYS[6], created, ARGV[1])
  redis.call('ZREM', KEYS[7], ARGV[1])
  redis.call('ZADD', KEYS[8], created, ARGV[1])
end
local token
token, lease = acquire()
redis.call('HSET', KEYS[1], unpack(changes))
return begun(token, lease)

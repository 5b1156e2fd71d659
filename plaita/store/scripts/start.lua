-- A new execution: row, index, carrier (DECISIONS 15).
-- KEYS 1 row, 2 flow versions, 3 flow meta, 4 index, 5 index of pending, 6 tombstone, 7 queue, 8 dedup key
-- ARGV 1 id, 2 tenant, 3 flow, 4 version, 5 input, 6 dedup key or '', 7 dedup ttl ms, 8 nonce, 9 ns, 10.. carrier fields
-- ok: id, version, hash, message id, deduplicated 0|1, status
-- refused: no_flow, no_version (latest), tombstoned (when, why), id_taken (flow of the owner)
-- include: key_part
-- include: time
-- include: resolve
-- include: tombstones
local row = redis.call('HMGET', KEYS[1], 'status', 'flow_id', 'start', 'version', 'flow_hash')
if row[3] then
  local nonce, message = string.match(row[3], '^(%S+) (%S+)$')
  if nonce == ARGV[8] then
    return {'ok', ARGV[1], row[4], row[5], message, 0, row[1]}
  end
end

if ARGV[6] ~= '' then
  local other = redis.call('GET', KEYS[8])
  if other then
    local found = redis.call('HMGET', ARGV[9] .. ':execution:' .. execution_part(other), 'status', 'version', 'flow_hash')
    if found[1] and not tombstone_of(KEYS[6], ARGV[1], other, ARGV[2]) then
      return {'ok', other, found[2] or '', found[3] or '', '', 1, found[1]}
    end
    -- a claim without a row: its start never happened (ledger S2), or was deleted (D2); it is claimed again below
  end
end

local tombstone = redis.call('HGET', KEYS[6], ARGV[2])
if tombstone then
  return {'refused', 'tombstoned', tombstone}
end
if row[1] then
  return {'refused', 'id_taken', row[2] or ''}
end
local version, hash = resolve(KEYS[2], KEYS[3], ARGV[4])
if not version then
  return hash
end

local now = text(now_ms())
local message = redis.call('XADD', KEYS[7], '*', unpack(ARGV, 10))
redis.call('ZADD', KEYS[4], now, ARGV[1])
redis.call('ZADD', KEYS[5], now, ARGV[1])
if ARGV[6] ~= '' then
  redis.call('SET', KEYS[8], ARGV[1], 'PX', ARGV[7])
  redis.call('HSET', KEYS[1], 'dedup_key', ARGV[6])
end
redis.call('HSET', KEYS[1], 'status', 'pending', 'flow_id', ARGV[3], 'version', version, 'flow_hash', hash,
  'tenant_id', ARGV[2], 'input', ARGV[5], 'created_at', now, 'first_enqueued_at', now, 'last_update_time', now,
  'start', ARGV[8] .. ' ' .. message)
return {'ok', ARGV[1], version, hash, message, 0, 'pending'}

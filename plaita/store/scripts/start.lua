-- A new execution: row, index, carrier (DECISIONS 15).
-- KEYS 1 row, 2 flow versions, 3 flow meta, 4 index, 5 index of pending, 6 tombstone, 7 queue, 8 dedup key,
--      9 tenant statuses, 10 tenant quotas, 11 parked tenants, 12 wake
-- ARGV 1 id, 2 tenant, 3 flow, 4 version, 5 input, 6 dedup key or '', 7 dedup ttl ms, 8 nonce, 9 ns, 10.. carrier fields
-- ok: id, version, hash, message id ('' where the carrier waits for a place of its tenant), deduplicated 0|1, status
-- refused: no_flow, no_version (latest), tombstoned (when, why), id_taken (flow of the owner), tenant_disabled
-- include: key_part
-- include: time
-- include: resolve
-- include: tombstones
-- include: parked
-- include: tenant_gate
local row = redis.call('HMGET', KEYS[1], 'status', 'flow_id', 'start', 'version', 'flow_hash')
if row[3] then
  local nonce, message = string.match(row[3], '^(%S+) (%S+)$')
  if nonce == ARGV[8] then
    return {'ok', ARGV[1], row[4], row[5], message == '-' and '' or message, 0, row[1]}
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
if tenant_shut(ARGV[2], redis.pcall('HGET', KEYS[9], ARGV[2]), false, '') then
  return {'refused', 'tenant_disabled'}
end
local version, hash = resolve(KEYS[2], KEYS[3], ARGV[4])
if not version then
  return hash
end

local now = text(now_ms())
local quota, message = quota_of(redis.pcall('HGET', KEYS[10], ARGV[2])), '-'
if quota and redis.call('ZCARD', KEYS[4] .. ':running') + redis.call('ZCARD', KEYS[5]) >= quota then
  -- What goes before it takes all places: a flood never enters the stream, where others would wait behind it (ledger T3).
  local fields = {'first_enqueued_at', now}
  for i = 10, #ARGV do
    fields[#fields + 1] = ARGV[i]
  end
  park(KEYS[11], 'q', ARGV[2], ARGV[1], fields)
else
  message = redis.call('XADD', KEYS[7], '*', unpack(ARGV, 10))
  if quota then
    local out = out_of(KEYS[11], ARGV[2])
    if redis.call('HLEN', out) >= quota then -- most of them have begun by now: less than the quota run or wait here
      on_their_way(out, {q = KEYS[7], w = KEYS[12]}, ARGV[9] .. ':execution:')
    end
    sent_out(out, 'q', message, ARGV[1])
  end
end
redis.call('ZADD', KEYS[4], now, ARGV[1])
redis.call('ZADD', KEYS[5], now, ARGV[1])
if ARGV[6] ~= '' then
  redis.call('SET', KEYS[8], ARGV[1], 'PX', ARGV[7])
  redis.call('HSET', KEYS[1], 'dedup_key', ARGV[6])
end
redis.call('HSET', KEYS[1], 'status', 'pending', 'flow_id', ARGV[3], 'version', version, 'flow_hash', hash,
  'tenant_id', ARGV[2], 'input', ARGV[5], 'created_at', now, 'first_enqueued_at', now, 'last_update_time', now,
  'start', ARGV[8] .. ' ' .. message)
return {'ok', ARGV[1], version, hash, message == '-' and '' or message, 0, 'pending'}

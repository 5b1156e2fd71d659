-- include: key_part
-- include: time
-- include: resolve
-- include: tombstones
-- include: parked
-- include: tenant_gate
-- A new execution, with the keys, arguments and answer of start.lua (DECISIONS 15).
local function start_execution(keys, args)
  local row = redis.call('HMGET', keys[1], 'status', 'flow_id', 'start', 'version', 'flow_hash')
  if row[3] then
    local nonce, message = string.match(row[3], '^(%S+) (%S+)$')
    if nonce == args[8] then
      return {'ok', args[1], row[4], row[5], message == '-' and '' or message, 0, row[1]}
    end
  end

  if args[6] ~= '' then
    local other = redis.call('GET', keys[8])
    if other then
      local found = redis.call('HMGET', args[9] .. ':execution:' .. execution_part(other), 'status', 'version', 'flow_hash')
      if found[1] and not tombstone_of(keys[6], args[1], other, args[2]) then
        return {'ok', other, found[2] or '', found[3] or '', '', 1, found[1]}
      end
      -- a claim without a row: its start never happened (ledger S2), or was deleted (D2); it is claimed again below
    end
  end

  local tombstone = redis.call('HGET', keys[6], args[2])
  if tombstone then
    return {'refused', 'tombstoned', tombstone}
  end
  if row[1] then
    return {'refused', 'id_taken', row[2] or ''}
  end
  if tenant_shut(args[2], redis.pcall('HGET', keys[9], args[2]), false, '') then
    return {'refused', 'tenant_disabled'}
  end
  local version, hash = resolve(keys[2], keys[3], args[4])
  if not version then
    return hash
  end

  local now = text(now_ms())
  local quota, message = quota_of(redis.pcall('HGET', keys[10], args[2])), '-'
  if quota and redis.call('ZCARD', keys[4] .. ':running') + redis.call('ZCARD', keys[5]) >= quota then
    -- What goes before it takes all places: a flood never enters the stream, where others would wait behind it (ledger T3).
    local fields = {'first_enqueued_at', now}
    for i = 10, #args do
      fields[#fields + 1] = args[i]
    end
    park(keys[11], 'q', args[2], args[1], fields)
  else
    message = redis.call('XADD', keys[7], '*', unpack(args, 10))
    if quota then
      local out = out_of(keys[11], args[2])
      if redis.call('HLEN', out) >= quota then -- most of them have begun by now: less than the quota run or wait here
        on_their_way(out, {q = keys[7], w = keys[12]}, args[9] .. ':execution:')
      end
      sent_out(out, 'q', message, args[1])
    end
  end
  redis.call('ZADD', keys[4], now, args[1])
  redis.call('ZADD', keys[5], now, args[1])
  if args[6] ~= '' then
    redis.call('SET', keys[8], args[1], 'PX', args[7])
    redis.call('HSET', keys[1], 'dedup_key', args[6])
  end
  redis.call('HSET', keys[1], 'status', 'pending', 'flow_id', args[3], 'version', version, 'flow_hash', hash,
    'tenant_id', args[2], 'input', args[5], 'created_at', now, 'first_enqueued_at', now, 'last_update_time', now,
    'start', args[8] .. ' ' .. message)
  return {'ok', args[1], version, hash, message == '-' and '' or message, 0, 'pending'}
end

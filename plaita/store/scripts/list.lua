-- A page of executions, newest first.
-- KEYS 1 index. ARGV 1 ns, 2 flow or '', 3 limit, 4 offset, 5 ids to look at, at most
-- ok: total, complete 0|1, rows {id, fields}
-- include: key_part
local NS, FLOW, LIMIT, OFFSET, MOST = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local FIELDS = {
  'status', 'flow_id', 'version', 'flow_hash', 'tenant_id', 'created_at', 'started_at', 'last_update_time', 'ended_at',
  'last_node', 'next_node', 'step', 'nodes', 'attempts', 'active_ms', 'cancel_reason', 'wait_type',
  'wait_since', 'wait_deadline', 'woken',
}
local function fields_of(id)
  local values, flat = redis.call('HMGET', NS .. ':execution:' .. execution_part(id), unpack(FIELDS)), {}
  for i, name in ipairs(FIELDS) do
    flat[#flat + 1] = name
    flat[#flat + 1] = values[i]
  end
  return flat, values
end

local rows = {}
if FLOW == '' then
  for _, id in ipairs(LIMIT > 0 and redis.call('ZREVRANGE', KEYS[1], OFFSET, OFFSET + LIMIT - 1) or {}) do
    local flat, values = fields_of(id)
    if values[1] then
      rows[#rows + 1] = {id, flat}
    end
  end
  return {'ok', redis.call('ZCARD', KEYS[1]), 1, rows}
end

local total, looked, size = 0, 0, 500
while looked < MOST do
  local ids = redis.call('ZREVRANGE', KEYS[1], looked, looked + size - 1)
  for _, id in ipairs(ids) do
    if redis.call('HGET', NS .. ':execution:' .. execution_part(id), 'flow_id') == FLOW then
      total = total + 1
      if total > OFFSET and total <= OFFSET + LIMIT then
        rows[#rows + 1] = {id, (fields_of(id))}
      end
    end
  end
  looked = looked + #ids
  if #ids < size then
    return {'ok', total, 1, rows}
  end
end
return {'ok', total, redis.call('ZCARD', KEYS[1]) <= looked and 1 or 0, rows}

-- include: time
-- Indexes a row again that lost its index member (ledger D4); 1 when it did. A server that takes no writes now is still
-- read: healing comes with a later read.
local function indexed_again(row, index, id, ns)
  local facts = redis.call('HMGET', row, 'status', 'created_at')
  local of_status = ns .. ':execution:index:' .. (facts[1] or '')
  if not facts[1] or (redis.call('ZSCORE', index, id) and redis.call('ZSCORE', of_status, id)) then
    return 0
  end
  local created = facts[2] or text(now_ms())
  local done = redis.pcall('ZADD', index, created, id)
  if type(done) ~= 'number' then
    return 0
  end
  redis.pcall('ZADD', of_status, created, id)
  return 1
end

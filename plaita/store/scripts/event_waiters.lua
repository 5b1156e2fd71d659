-- A page of the executions whose waits an event ends. Members whose wait is over are taken out: a subscription that was
-- left behind (by a restored backup) must not stay for ever (ledger E2).
-- KEYS 1 a set of the index. ARGV 1 ns, 2 cursor, 3 about how many. ok: next cursor, {id, wait, flow id, ...}, taken out
-- include: key_part
-- include: waits
local page = redis.call('SSCAN', KEYS[1], ARGV[2], 'COUNT', ARGV[3])
local found, residual = {}, 0
for _, id in ipairs(page[2]) do
  local row = redis.pcall('HMGET', ARGV[1] .. ':execution:' .. execution_part(id), 'status', 'wait', 'woken', 'wait_index',
    'flow_id')
  local here = not row.err and row[1] == 'suspended' and not given(row[3]) and given(row[4])
    and string.find(row[4] .. '\n', '\n' .. KEYS[1] .. '\n', 1, true)
  if here then
    found[#found + 1], found[#found + 2], found[#found + 3] = id, row[2], row[5] or ''
  else
    redis.call('SREM', KEYS[1], id)
    residual = residual + 1
  end
end
return {'ok', page[1], found, residual}

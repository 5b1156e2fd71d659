-- A page of a set of the index: members go whose row does not say that it stands there (ledger E2, D4).
-- KEYS 1 the set. ARGV 1 ns, 2 cursor, 3 about how many. ok: next cursor, taken out
-- include: key_part
-- include: waits
-- include: subscriptions
local page = redis.call('SSCAN', KEYS[1], ARGV[2], 'COUNT', ARGV[3])
local dropped = 0
for _, id in ipairs(page[2]) do
  local row = redis.pcall('HMGET', ARGV[1] .. ':execution:' .. execution_part(id), 'status', 'woken', 'wait_index')
  if row.err or row[1] ~= 'suspended' or given(row[2]) or not stands_in(row[3], KEYS[1]) then
    dropped = dropped + redis.call('SREM', KEYS[1], id)
  end
end
return {'ok', page[1], dropped}

-- One carrier for an execution that has none, only while it is as it was seen (ledger D4).
-- KEYS 1 row, 2 lease, 3 tombstone, 4 wake stream. ARGV 1 tenant, 2 mark as of lib `reindex`, 3.. carrier fields
-- ok: message id, or '' where it has changed
local row = redis.pcall('HMGET', KEYS[1], 'status', 'last_update_time', 'commit', 'attempts', 'woken')
if row.err or not row[1] or redis.call('EXISTS', KEYS[2]) == 1 or redis.call('HEXISTS', KEYS[3], ARGV[1]) == 1 then
  return {'ok', ''}
end
if table.concat({row[1], row[2] or '', row[3] or '', row[4] or '', row[5] or ''}, '\n') ~= ARGV[2] then
  return {'ok', ''}
end
return {'ok', redis.call('XADD', KEYS[4], '*', unpack(ARGV, 3))}

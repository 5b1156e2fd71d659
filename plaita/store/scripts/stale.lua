-- Running rows without a sign of life; a page (ledger D6). KEYS 1 index of running
-- ARGV 1 ns, 2 cursor, 3 about how many, 4 idle for at least ms
-- ok: next cursor, {id, mark, idle ms, last_update_time, next node, its timing or '', flow, leased 0|1} of each
-- include: time
-- include: key_part
local BASE = ARGV[1] .. ':execution:'
local page = redis.call('ZSCAN', KEYS[1], ARGV[2], 'COUNT', ARGV[3])
local found = {}
for i = 1, #page[2], 2 do
  local id = page[2][i]
  local key = BASE .. execution_part(id)
  local row = redis.pcall('HMGET', key, 'status', 'last_update_time', 'commit', 'attempts', 'next_node', 'flow_id')
  local updated = not row.err and tonumber(row[2] or '')
  if row[1] == 'running' and updated and now_ms() - updated >= tonumber(ARGV[4]) then
    found[#found + 1] = {
      id, table.concat({row[2], row[3] or '', row[4] or ''}, '\n'), now_ms() - updated, row[2], row[5] or '',
      redis.call('HGET', key, 't:' .. (row[5] or '')) or '', row[6] or '',
      redis.call('EXISTS', BASE .. 'lease:' .. execution_part(id)),
    }
  end
end
return {'ok', page[1], found}

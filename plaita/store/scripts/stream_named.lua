-- Whose carriers stand in a stream, the oldest first, until so many or so many bytes. KEYS 1 stream
-- ARGV 1 first id ('-' or '(id'), 2 how many at most, 3 bytes at most
-- ok: last id or '' at the end, {entry id, fields} of each; large payloads are left out where the entry says whose it is
local found, bytes, from = {}, 0, ARGV[1]
while true do
  local entry = redis.call('XRANGE', KEYS[1], from, '+', 'COUNT', 1)[1]
  if not entry then
    return {'ok', '', found}
  end
  local named = {}
  for i = 1, #entry[2], 2 do
    bytes = bytes + #entry[2][i + 1]
    named[entry[2][i]] = entry[2][i + 1]
  end
  local fields = entry[2]
  if named.execution_id and named.tenant_id then
    fields = {'execution_id', named.execution_id, 'tenant_id', named.tenant_id}
  end
  found[#found + 1] = {entry[1], fields}
  from = '(' .. entry[1]
  if #found >= tonumber(ARGV[2]) or bytes > tonumber(ARGV[3]) then
    return {'ok', entry[1], found}
  end
end

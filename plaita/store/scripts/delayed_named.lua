-- Whose carriers stand in the delayed set; a page. Timers of waits are left out: they move nobody who does not wait.
-- KEYS 1 delayed bodies. ARGV 1 cursor, 2 about how many. ok: next cursor, {execution id, tenant id or ''} of each
local page = redis.call('HSCAN', KEYS[1], ARGV[1], 'COUNT', ARGV[2])
local found = {}
for i = 2, #page[2], 2 do
  local fine, body = pcall(cmsgpack.unpack, page[2][i])
  if fine and type(body) == 'table' and body[1] ~= 't' then
    local named = {}
    for at = 2, #body - 1, 2 do
      named[body[at]] = body[at + 1]
    end
    if named.execution_id then
      found[#found + 1] = {named.execution_id, named.tenant_id or ''}
    end
  end
end
return {'ok', page[1], found}

-- Whose carriers are parked; a page of a tenant's list. KEYS 1 list. ARGV 1 from which on, 2 how many
-- ok: where the next page begins, or -1 at the end; the execution id of each
local first, count = tonumber(ARGV[1]), tonumber(ARGV[2])
local page, found = redis.call('LRANGE', KEYS[1], first, first + count - 1), {}
for _, body in ipairs(page) do
  local fine, fields = pcall(cmsgpack.unpack, body)
  if fine and type(fields) == 'table' and type(fields[1]) == 'string' then
    found[#found + 1] = fields[1]
  end
end
return {'ok', #page < count and -1 or first + count, found}

-- The newest entry of an execution among the newest of both streams, by its entry fields. Changes nothing.
-- KEYS 1 wake, 2 queue. ARGV 1 execution id, 2 tenant, 3 entries to look at in each
-- ok: (nothing) | w|q, entry id, fields
local PAGE, MOST_BYTES = 32, 4 * 1024 * 1024

local function newest(stream)
  local before, looked, bytes = '+', 0, 0
  while looked < tonumber(ARGV[3]) and bytes < MOST_BYTES do
    local found = redis.call('XREVRANGE', stream, before, '-', 'COUNT', PAGE)
    for _, entry in ipairs(found) do
      local fields, named = entry[2], {}
      for i = 1, #fields, 2 do
        named[fields[i]] = fields[i + 1]
        bytes = bytes + #fields[i + 1]
      end
      if named.execution_id == ARGV[1] and named.tenant_id == ARGV[2] then
        return entry
      end
      before = '(' .. entry[1]
    end
    looked = looked + #found
    if #found < PAGE then
      return nil
    end
  end
  return nil
end

for i, letter in ipairs({'w', 'q'}) do
  local entry = newest(KEYS[i])
  if entry then
    return {'ok', letter, entry[1], entry[2]}
  end
end
return {'ok'}

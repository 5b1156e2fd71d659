-- What was put by as MessagePack: an odd list of at least three texts, else nil.
local function record_of(body)
  if type(body) ~= 'string' then
    return nil
  end
  local fine, fields = pcall(cmsgpack.unpack, body)
  if not fine or type(fields) ~= 'table' or #fields < 3 or #fields % 2 == 0 then
    return nil
  end
  for _, word in ipairs(fields) do
    if type(word) ~= 'string' then
      return nil
    end
  end
  return fields
end

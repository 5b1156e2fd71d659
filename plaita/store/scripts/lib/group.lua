-- XINFO GROUPS of one group as a table by field name, or nil without stream or group.
local function group_facts(stream, group)
  if redis.call('EXISTS', stream) == 0 then
    return nil
  end
  for _, flat in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    local facts = {}
    for i = 1, #flat, 2 do
      facts[flat[i]] = flat[i + 1]
    end
    if facts.name == group then
      return facts
    end
  end
  return nil
end

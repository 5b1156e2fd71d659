-- The row's `retried` field lists the nodes whose noderetry counter exists, as ':a:b:' (key parts hold no colon).
local function retried_has(list, part)
  return list and string.find(list, ':' .. part .. ':', 1, true) ~= nil
end

local function retried_without(list, part)
  local from, to = string.find(list, ':' .. part .. ':', 1, true)
  return string.sub(list, 1, from) .. string.sub(list, to + 1)
end

-- Appends the counter keys of all listed nodes to `names`; base is noderetry:{id}.
local function retried_keys(list, base, names)
  for part in string.gmatch(list or '', '[^:]+') do
    names[#names + 1] = base .. ':' .. part
  end
end

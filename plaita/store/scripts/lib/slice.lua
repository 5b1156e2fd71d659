-- list[from..to] as a new list.
local function slice(list, from, to)
  local part = {}
  for i = from, to do
    part[#part + 1] = list[i]
  end
  return part
end

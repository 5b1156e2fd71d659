-- Ids of stream entries by time. They are never rounded: both halves fit into a double.
local function order_of(id)
  local ms, number = string.match(id, '^(%d+)-(%d+)$')
  return tonumber(ms), tonumber(number)
end

local function is_later(one, other)
  local a, b = order_of(one)
  local c, d = order_of(other)
  return a > c or (a == c and b > d)
end

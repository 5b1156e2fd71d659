-- Which of two versions is the latest: 'latest' itself, else the higher purely numeric dotted one, else the newer put.
local function numeric(version)
  if not string.match(version, '^%d[%d.]*$') or string.find(version, '..', 1, true) or string.sub(version, -1) == '.' then
    return nil
  end
  local parts = {}
  for part in string.gmatch(version, '%d+') do
    parts[#parts + 1] = string.gsub(part, '^0+', '')
  end
  return parts
end

-- Digits are compared as text, by length first: they may be longer than a double is exact.
local function higher(left, right)
  for i = 1, math.max(#left, #right) do
    local a, b = left[i] or '', right[i] or ''
    if #a ~= #b then
      return #a > #b
    end
    if a ~= b then
      return a > b
    end
  end
  return #left > #right
end

local function takes_over(new, current)
  if not current or new == 'latest' then
    return true
  end
  if current == 'latest' then
    return false
  end
  local a, b = numeric(new), numeric(current)
  if a and b then
    return higher(a, b)
  end
  return a ~= nil or b == nil
end

-- Drop what is old from the event log, never what some group has not done with. KEYS 1 log. ARGV 1 age ms. ok: dropped
-- include: time
if redis.call('EXISTS', KEYS[1]) == 0 then
  return {'ok', 0}
end

local function order_of(id)
  local ms, number = string.match(id, '^(%d+)-(%d+)$')
  return tonumber(ms), tonumber(number)
end

local function earlier(one, other)
  local a, b = order_of(one)
  local c, d = order_of(other)
  return (a < c or (a == c and b < d)) and one or other
end

local first = text(now_ms() - ARGV[1]) .. '-0'
for _, flat in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
  local facts = {}
  for i = 1, #flat, 2 do
    facts[flat[i]] = flat[i + 1]
  end
  first = earlier(first, facts['last-delivered-id'])
  local pending = redis.call('XPENDING', KEYS[1], facts.name)
  if pending[1] > 0 then
    first = earlier(first, pending[2])
  end
end
return {'ok', redis.call('XTRIM', KEYS[1], 'MINID', first)}

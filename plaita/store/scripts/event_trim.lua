-- Drop what is old from the event log, never what some group has not done with. KEYS 1 log. ARGV 1 age ms.
-- ok: dropped, left
-- include: time
-- include: log_order
if redis.call('EXISTS', KEYS[1]) == 0 then
  return {'ok', 0, 0}
end

local first = text(now_ms() - ARGV[1]) .. '-0'
local function keep_from(id)
  if is_later(first, id) then
    first = id
  end
end
for _, flat in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
  local facts = {}
  for i = 1, #flat, 2 do
    facts[flat[i]] = flat[i + 1]
  end
  keep_from(facts['last-delivered-id'])
  local pending = redis.call('XPENDING', KEYS[1], facts.name)
  if pending[1] > 0 then
    keep_from(pending[2])
  end
end
local dropped = redis.call('XTRIM', KEYS[1], 'MINID', first)
return {'ok', dropped, redis.call('XLEN', KEYS[1])}

-- One stream of the queue and its group; changes nothing. KEYS 1 stream. ARGV 1 group, 2 consumers at most
-- ok: type, length, group there 0|1, pending, lag or -1, {first pending id, consumer, idle ms} or {}, first unread id or '',
--     {consumer, pending, idle ms} of each, now ms
-- include: time
-- include: group
local kind = redis.call('TYPE', KEYS[1]).ok
local function answer(length, there, pending, lag, oldest, unread, consumers)
  return {'ok', kind, length, there, pending, lag, oldest, unread, consumers, text(now_ms())}
end
if kind ~= 'stream' then
  return answer(0, 0, 0, 0, {}, '', {})
end
local length, facts = redis.call('XLEN', KEYS[1]), group_facts(KEYS[1], ARGV[1])
if not facts then
  local first = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1]
  return answer(length, 0, 0, length, {}, first and first[1] or '', {})
end
local oldest = redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1)[1]
local unread = redis.call('XRANGE', KEYS[1], '(' .. facts['last-delivered-id'], '+', 'COUNT', 1)[1]
local consumers = {}
for _, flat in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
  local one = {}
  for i = 1, #flat, 2 do
    one[flat[i]] = flat[i + 1]
  end
  if #consumers < tonumber(ARGV[2]) then
    consumers[#consumers + 1] = {one.name, one.pending, text(one.idle)}
  end
end
return answer(
  length, 1, facts.pending, facts.lag or -1, oldest and {oldest[1], oldest[2], text(oldest[3])} or {},
  unread and unread[1] or '', consumers
)

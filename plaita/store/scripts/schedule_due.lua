-- Schedules whose time has come, and how long it is to the next one.
-- KEYS 1 due set. ARGV 1 how many, 2 prefix
-- ok: now, score of the next one or '', of each: member, score, record or '' where there is none
-- include: key_part
-- include: time
local now = text(now_ms())
local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'WITHSCORES', 'LIMIT', 0, ARGV[1])
local found = {}
for i = 1, #due, 2 do
  local split = string.find(due[i], '\0', 1, true)
  local record
  if split then
    local schedules = namespace(ARGV[2], string.sub(due[i], 1, split - 1)) .. ':schedules'
    record = redis.pcall('HGET', schedules, string.sub(due[i], split + 1))
  end
  found[#found + 1], found[#found + 2] = due[i], due[i + 1]
  found[#found + 1] = type(record) == 'string' and record or ''
end
local later = redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. now, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
return {'ok', now, later[2] or '', found}

-- A page of the due set: schedules whose due time is far away, for who asks whether it is the right one.
-- KEYS 1 due set. ARGV 1 cursor, 2 how many, 3 prefix, 4 how far away ms
-- ok: now, next cursor, of each: member, due time, record or '' where there is none
-- include: key_part
-- include: time
local page, far, found = redis.call('ZSCAN', KEYS[1], ARGV[1], 'COUNT', ARGV[2]), now_ms() + tonumber(ARGV[4]), {}
for i = 1, #page[2], 2 do
  local member = page[2][i]
  local score = redis.call('ZSCORE', KEYS[1], member) -- as the other scripts write it
  local split = string.find(member, '\0', 1, true)
  if split and score and tonumber(score) > far then
    local schedules = namespace(ARGV[3], string.sub(member, 1, split - 1)) .. ':schedules'
    local record = redis.pcall('HGET', schedules, string.sub(member, split + 1))
    found[#found + 1], found[#found + 2], found[#found + 3] = member, score, type(record) == 'string' and record or ''
  end
end
return {'ok', text(now_ms()), page[1], found}

-- Schedules of a tenant, all or those without a due time, or one of them.
-- KEYS 1 schedules, 2 due set. ARGV 1 tenant, 2 start of the keys of histories, 3 cursor, or '' for one, 4 its id or how many,
--      5 whether only those without a due time 0|1
-- ok: now, next cursor, of each: id, record, due time or '', last entry of its history or ''
-- include: key_part
-- include: time
local cursor, flat = '0', {}
if ARGV[3] == '' then
  local record = redis.call('HGET', KEYS[1], ARGV[4])
  if record then
    flat = {ARGV[4], record}
  end
else
  local page = redis.call('HSCAN', KEYS[1], ARGV[3], 'COUNT', ARGV[4])
  cursor, flat = page[1], page[2]
end
local found = {}
for i = 1, #flat, 2 do
  local due = redis.pcall('ZSCORE', KEYS[2], ARGV[1] .. '\0' .. flat[i])
  due = type(due) == 'string' and due or ''
  if ARGV[5] == '0' or due == '' then
    local last = redis.pcall('LRANGE', ARGV[2] .. key_part(flat[i]), 0, 0)
    for _, word in ipairs({flat[i], flat[i + 1], due, last[1] or ''}) do
      found[#found + 1] = word
    end
  end
end
return {'ok', text(now_ms()), cursor, found}

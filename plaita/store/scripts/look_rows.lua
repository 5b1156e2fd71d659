-- Executions that have not ended, as a reader sees them; changes nothing. KEYS 1 index of a status, 2 delayed
-- ARGV 1 ns, 2 cursor or '' for the ids given, 3 about how many, 4.. ids
-- ok: next cursor, how many there are, {id, status, ms since it was written, next node, its timing or '', lease or '',
--     woken or '', cancel 0|1, ms until the deadline of its wait or '', its timer is there 0|1} of each
-- include: time
-- include: key_part
-- include: waits
local BASE = ARGV[1] .. ':execution:'
local cursor, ids = '0', {}
if ARGV[2] ~= '' then
  local page = redis.call('ZSCAN', KEYS[1], ARGV[2], 'COUNT', ARGV[3])
  cursor = page[1]
  for i = 1, #page[2], 2 do
    ids[#ids + 1] = page[2][i]
  end
else
  for i = 4, #ARGV do
    ids[#ids + 1] = ARGV[i]
  end
end

local function value_of(command, ...)
  local found = redis.pcall(command, ...)
  return type(found) == 'string' and found or ''
end

local rows = {}
for _, id in ipairs(ids) do
  local part = execution_part(id)
  local key = BASE .. part
  local row = redis.pcall('HMGET', key, 'status', 'last_update_time', 'next_node', 'wait', 'wait_deadline', 'woken')
  if not row.err and row[1] then
    local due, timer = tonumber(row[5] or ''), 1
    if row[1] == 'suspended' and due and given(row[4]) and not given(row[6]) then
      timer = redis.call('ZSCORE', KEYS[2], timer_name(ARGV[1], id, row[4])) and 1 or 0
    end
    rows[#rows + 1] = {
      id, row[1], text(now_ms() - (tonumber(row[2] or '') or now_ms())), row[3] or '',
      row[1] == 'running' and value_of('HGET', key, 't:' .. (row[3] or '')) or '',
      value_of('GET', BASE .. 'lease:' .. part), row[6] or '', redis.call('EXISTS', BASE .. 'cancel:' .. part),
      row[1] == 'suspended' and due and text(due - now_ms()) or '', timer,
    }
  end
end
return {'ok', cursor, redis.call('ZCARD', KEYS[1]), rows}

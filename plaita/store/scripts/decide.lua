-- One person's decision on what an execution waits for; the one that settles it also wakes it (FLOW-FORMAT rule 16).
-- KEYS 1 row, 2 wake stream, 3 delayed, 4 delayed bodies
-- ARGV 1 execution id, 2 ns, 3 wait, 4 task id, 5 decisions as they were read, 6 decisions with this one, 7 data of the event
--      or '' while it is open, 8 event id, 9 nonce, 10.. carrier fields
-- ok: settled 0|1. refused: over (status), too_late (deadline), changed: read again
-- include: lease
-- include: slice
-- include: wake_row
local row = redis.pcall('HMGET', KEYS[1], 'status', 'wait', 'woken', 'wait_task', 'wait_decisions', 'wait_deadline', 'woken_by',
  'used_events')
if row.err then
  return {'refused', 'over', 'wrong_type'}
end
if row[7] == ARGV[9] or (row[5] == ARGV[6] and row[2] == ARGV[3] and not given(row[3]) and ARGV[7] == '') then
  return {'ok', ARGV[7] ~= '' and 1 or 0} -- sent again
end
local waits = row[1] == 'suspended' and row[2] == ARGV[3] and not given(row[3]) and given(row[4])
if not waits or string.match(row[4], '[^\n]+$') ~= ARGV[4] then
  return {'refused', 'over', row[1] or ''}
end
if given(row[6]) and now_ms() >= tonumber(row[6]) then
  return {'refused', 'too_late', row[6]} -- its timer is due, whoever moves it
end
if (row[5] or '') ~= ARGV[5] then
  return {'refused', 'changed'}
end
redis.call('HSET', KEYS[1], 'wait_decisions', ARGV[6])
if ARGV[7] == '' then
  return {'ok', 0}
end
local by = {kind = 'event', data = ARGV[7], event_id = ARGV[8], named = true, nonce = ARGV[9]}
local at = {delayed = KEYS[3], bodies = KEYS[4], ns = ARGV[2], wake = KEYS[2]}
wake_row(KEYS[1], ARGV[1], row[2], row[8], by, at, slice(ARGV, 10, #ARGV))
return {'ok', 1}

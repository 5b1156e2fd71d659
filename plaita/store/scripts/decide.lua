-- One person's decision on what an execution waits for; the one that settles it also wakes it (FLOW-FORMAT rule 16).
-- KEYS 1 row, 2 tombstone, 3 wake stream, 4 delayed, 5 delayed bodies, 6 cancel
-- ARGV 1 execution id, 2 ns, 3 wait, 4 task id, 5 decisions as they were read, 6 decisions with this one, 7 data of the event
--      or '' while it is open, 8 event id, 9 nonce, which also stands in this decision, 10 tenant, 11.. carrier fields
-- ok: settled 0|1. refused: over (status), too_late (deadline), cancelled (reason), changed: read again
-- include: lease
-- include: slice
-- include: wake_row
local row = redis.pcall('HMGET', KEYS[1], 'status', 'wait', 'woken', 'wait_task', 'wait_decisions', 'wait_deadline', 'woken_by',
  'used_events')
if row.err then
  return {'refused', 'over', 'wrong_type'}
end
if row[7] == ARGV[9] then
  return {'ok', 1} -- sent again; it settled the matter, however far the execution has gone since
end
if ARGV[7] == '' and row[2] == ARGV[3] and string.find(row[5] or '', ARGV[9], 1, true) then
  return {'ok', 0} -- sent again; others may have decided since
end
local waits = row[1] == 'suspended' and row[2] == ARGV[3] and not given(row[3]) and given(row[4])
if not waits or string.match(row[4], '[^\n]+$') ~= ARGV[4] or redis.call('HEXISTS', KEYS[2], ARGV[10]) == 1 then
  return {'refused', 'over', row[1] or ''}
end
local cancelled = redis.call('GET', KEYS[6])
if cancelled then
  return {'refused', 'cancelled', cancelled} -- it ends as soon as a host takes the cancel: no decision could count
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
local at = {delayed = KEYS[4], bodies = KEYS[5], ns = ARGV[2], wake = KEYS[3]}
wake_row(KEYS[1], ARGV[1], row[2], row[8], by, at, slice(ARGV, 11, #ARGV))
return {'ok', 1}

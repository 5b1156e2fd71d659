-- End a wait, once: mark the row, drop the timer and send the carrier, all in one call (DECISIONS 26).
-- KEYS 1 row, 2 tombstone, 3 wake stream, 4 delayed, 5 delayed bodies
-- ARGV 1 tenant, 2 execution id, 3 ns, 4 event|timeout, 5 data, 6 event id or '', 7 wait or '', 8 nonce,
--      9 whether others know the event by that id 0|1, 10.. carrier fields
-- ok: status, woken by this call or the same event before 0|1, reason it was not (terminal, not_waiting, already_woken,
--     stale_wait, used_event, cancelled). refused: tombstoned (when, why), no_row, wrong_type
-- include: lease
-- include: slice
-- include: wake_row
local row = redis.pcall('HMGET', KEYS[1], 'status', 'wait', 'woken', 'wake_id', 'woken_by', 'used_events')
if row.err then
  return {'refused', 'wrong_type', redis.call('TYPE', KEYS[1]).ok}
end
local tombstone = redis.call('HGET', KEYS[2], ARGV[1])
if tombstone then
  return {'refused', 'tombstoned', tombstone}
end
if not row[1] then
  return {'refused', 'no_row'}
end
local status, wait, woken = row[1], row[2], row[3]
if row[5] == ARGV[8] then
  return {'ok', status, 1, ''} -- sent again; what it woke may be over, and the next wait is not its to end
end
if TERMINAL[status] then
  return {'ok', status, 0, 'terminal'}
end
local this_wait = ARGV[7] == '' or ARGV[7] == wait
if this_wait and woken == ARGV[4] and row[4] == ARGV[6] and (ARGV[6] ~= '' or ARGV[7] ~= '') then
  return {'ok', status, 1, ''} -- the same event
end
if status ~= 'suspended' or not given(wait) then
  return {'ok', status, 0, 'not_waiting'}
end
if not this_wait then
  return {'ok', status, 0, 'stale_wait'}
end
if given(woken) then
  return {'ok', status, 0, 'already_woken'}
end
if cancel_is_asked(ARGV[3], ARGV[2]) then
  return {'ok', status, 0, 'cancelled'}
end
local named = ARGV[9] == '1'
if named and event_is_used(row[6], ARGV[6]) then
  return {'ok', status, 0, 'used_event'}
end
local by = {kind = ARGV[4], data = ARGV[5], event_id = ARGV[6], named = named, nonce = ARGV[8]}
local at = {delayed = KEYS[4], bodies = KEYS[5], ns = ARGV[3], wake = KEYS[3]}
wake_row(KEYS[1], ARGV[2], wait, row[6], by, at, slice(ARGV, 10, #ARGV))
return {'ok', status, 1, ''}

-- Messages of a queue end a wait. In the same call the wait's record says what becomes of them on their own server, so that
-- they are used once, whoever dies when.
-- KEYS 1 row, 2 tombstone, 3 wake stream, 4 delayed, 5 delayed bodies, 6 records
-- ARGV 1 tenant, 2 execution id, 3 ns, 4 wait, 5 since, 6 digest, 7 what becomes of the messages, 8 data, 9 event id, 10 nonce,
--      11.. carrier fields
-- ok: 1 it was ended by this call, or by the same before; 0 it was over
-- include: lease
-- include: slice
-- include: wake_row
local ended = ARGV[6] .. ':ended'
if redis.call('HEXISTS', KEYS[6], ended) == 1 then
  return {'ok', 1}
end
local row = redis.pcall('HMGET', KEYS[1], 'status', 'wait', 'woken', 'wait_since', 'used_events', 'woken_by')
if row.err then
  return {'ok', 0}
end
if row[6] == ARGV[10] then
  return {'ok', 1} -- sent again, and cleared up since
end
local waits = row[1] == 'suspended' and row[2] == ARGV[4] and row[4] == ARGV[5] and not given(row[3])
if not waits or redis.call('HEXISTS', KEYS[2], ARGV[1]) == 1 or cancel_is_asked(ARGV[3], ARGV[2]) then
  return {'ok', 0}
end
local by = {kind = 'event', data = ARGV[8], event_id = ARGV[9], named = true, nonce = ARGV[10]}
local at = {delayed = KEYS[4], bodies = KEYS[5], ns = ARGV[3], wake = KEYS[3]}
wake_row(KEYS[1], ARGV[2], row[2], row[5], by, at, slice(ARGV, 11, #ARGV))
if redis.call('HEXISTS', KEYS[6], ARGV[6]) == 1 then
  redis.call('HSET', KEYS[6], ended, ARGV[7])
end
return {'ok', 1}

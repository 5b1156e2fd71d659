-- End the waits of many executions by one event, each once; those that are over by now are left (DECISIONS 26, 28).
-- KEYS 1 wake stream, 2 delayed, 3 delayed bodies
-- ARGV 1 tenant, 2 ns, 3 prefix of tombstone keys, 4 data, 5 event id, 6 nonce, then for each execution: id, wait,
--      number n of carrier words, those. ok: how many were woken
-- include: lease
-- include: slice
-- include: wake_row
local by = {kind = 'event', data = ARGV[4], event_id = ARGV[5], named = true, nonce = ARGV[6]}
local at = {delayed = KEYS[2], bodies = KEYS[3], ns = ARGV[2], wake = KEYS[1]}
local woken, i = 0, 7
while i <= #ARGV do
  local id, wait, words = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2])
  local key = ARGV[2] .. ':execution:' .. execution_part(id)
  local row = redis.pcall('HMGET', key, 'status', 'wait', 'woken', 'used_events')
  local waits = not row.err and row[1] == 'suspended' and row[2] == wait and not given(row[3])
    and not cancel_is_asked(ARGV[2], id)
  if waits and not event_is_used(row[4], by.event_id) and redis.call('HEXISTS', ARGV[3] .. key_part(id), ARGV[1]) == 0 then
    wake_row(key, id, wait, row[4], by, at, slice(ARGV, i + 3, i + 2 + words))
    woken = woken + 1
  end
  i = i + 3 + words
end
return {'ok', woken}

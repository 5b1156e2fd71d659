-- A node waits: its pending result, the wait, the timer, the release and the ack in one call (ledger F3, DECISIONS 26).
-- KEYS 1 row, 2 fence, 3 fencegen, 4 lease, 5 cancel, 6 nofail, 7 noderetry of this node, 8 index of running,
--      9 index of suspended, 10 stream of the carrier, 11 delayed, 12 delayed bodies
-- ARGV 1 token, 2 step, which names the wait, 3 active ms delta, 4 entry id, 5 group, 6 execution id, 7 key part of the node,
--      8 timeout ms or '', 9 ns, 10 number n of timer words, 11..10+n those, then the row's fields
-- ok: done before 0|1, deadline ms or ''. refused: see lib/settle; cancel (reason): the holder ends it instead
-- include: settle
-- include: retried
-- include: carrier
-- include: slice
-- include: delayed
-- include: waits
local refusal, row, flags, done = check('suspend')
if refusal then
  return refusal
end
if done then
  local wait = redis.call('HMGET', KEYS[1], 'wait', 'wait_deadline')
  return {'ok', 1, wait[1] == ARGV[2] and wait[2] or ''}
end
if flags[4] then
  return {'refused', 'cancel', flags[4]}
end
local now, deadline = now_ms(), ''
local words = tonumber(ARGV[10])
if ARGV[8] ~= '' then
  deadline = text(now + ARGV[8])
  local timer = slice(ARGV, 11, 10 + words)
  table.insert(timer, 1, KEYS[1])
  table.insert(timer, 2, ARGV[2])
  delay(KEYS[11], KEYS[12], timer_name(ARGV[9], ARGV[6], ARGV[2]), now + ARGV[8], 't', timer)
end

local function set(name, value)
  ARGV[#ARGV + 1] = name
  ARGV[#ARGV + 1] = value
end
set('active_ms', active_ms(row, ARGV[3]))
set('last_update_time', text(now))
set('wait_since', text(now))
set('wait_deadline', deadline)
if retried_has(row[5], ARGV[7]) then
  redis.call('DEL', KEYS[7])
  set('retried', retried_without(row[5], ARGV[7]))
end
write_row(11 + words)
if flags[5] then
  redis.call('DEL', KEYS[6])
end
redis.call('ZREM', KEYS[8], ARGV[6])
redis.call('ZADD', KEYS[9], row[7] or text(now), ARGV[6])
redis.call('DEL', KEYS[4])
settle_carrier(KEYS[10], ARGV[5], ARGV[4])
return {'ok', 0, deadline}

-- Give an execution up for now: release, ack, and a copy of the carrier that comes back later (ledger S10).
-- KEYS 1 row, 2 fence, 3 fencegen, 4 lease, 5 cancel, 6 nofail, 7 noderetry, 8 noderefetch, 9 g1wakeups, 10 index of running,
--      11 stream of the carrier, 12 noderetry of the node, 13 delayed, 14 delayed bodies
-- ARGV 1 token, 2 step, 3 active ms delta, 4 entry id, 5 group, 6 delay ms, 7 copy id, 8 lower lost 0|1, 9 count retry 0|1,
--      10 key part of the node or '', 11 counter ttl ms, 12 number n of copy words, 13..12+n those, then the row's fields
-- ok: retries of the node, retries of all, done before 0|1. refused: see lib/settle
-- include: settle
-- include: retried
-- include: carrier
-- include: slice
-- include: delayed
local refusal, row, _, done = check('postpone')
if refusal then
  return refusal
end
local function counted(key)
  return tonumber(redis.call('GET', key)) or 0
end
if done then
  return {'ok', counted(KEYS[12]), counted(KEYS[8]), 1}
end
local now = now_ms()
local words, last = tonumber(ARGV[12]), #ARGV
delay(KEYS[13], KEYS[14], ARGV[7], now + ARGV[6], 'w', slice(ARGV, 13, 12 + words))

ARGV[last + 1], ARGV[last + 2] = 'active_ms', active_ms(row, ARGV[3])
ARGV[last + 3], ARGV[last + 4] = 'last_update_time', text(now)
if ARGV[8] == '1' then
  ARGV[#ARGV + 1] = 'lost'
  ARGV[#ARGV + 1] = text(math.max(0, (tonumber(row[6]) or 0) - 1))
end
if ARGV[9] == '1' then
  for _, key in ipairs({KEYS[12], KEYS[8]}) do
    redis.call('INCR', key)
    redis.call('PEXPIRE', key, ARGV[11])
  end
  if ARGV[10] ~= '' and not retried_has(row[5], ARGV[10]) then
    ARGV[#ARGV + 1] = 'retried'
    ARGV[#ARGV + 1] = (row[5] or ':') .. ARGV[10] .. ':'
  end
end
write_row(13 + words)
redis.call('DEL', KEYS[4])
settle_carrier(KEYS[11], ARGV[5], ARGV[4])
return {'ok', counted(KEYS[12]), counted(KEYS[8]), 0}

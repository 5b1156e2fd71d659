-- Give an execution up for now: release, ack, and a copy of the carrier that comes back later (ledger S10).
-- KEYS 1 row, 2 fence, 3 fencegen, 4 lease, 5 cancel, 6 nofail, 7 noderetry, 8 noderefetch, 9 g1wakeups, 10 index of running,
--      11 stream of the carrier, 12 delayed, 13 delayed bodies
-- ARGV 1 token, 2 step, 3 active ms delta, 4 entry id, 5 group, 6 delay ms, 7 copy id, 8 lower lost 0|1,
--      9 number n of copy words, 10..9+n those, then the row's fields
-- ok: done before 0|1. refused: see lib/settle
-- include: settle
-- include: carrier
-- include: slice
-- include: delayed
local refusal, row, _, done = check('postpone')
if refusal then
  return refusal
end
if done then
  return {'ok', 1}
end
local now = now_ms()
local words, last = tonumber(ARGV[9]), #ARGV
delay(KEYS[12], KEYS[13], ARGV[7], now + ARGV[6], 'w', slice(ARGV, 10, 9 + words))

ARGV[last + 1], ARGV[last + 2] = 'active_ms', active_ms(row, ARGV[3])
ARGV[last + 3], ARGV[last + 4] = 'last_update_time', text(now)
if ARGV[8] == '1' then
  ARGV[#ARGV + 1] = 'lost'
  ARGV[#ARGV + 1] = text(math.max(0, (tonumber(row[6]) or 0) - 1))
end
write_row(10 + words)
redis.call('DEL', KEYS[4])
settle_carrier(KEYS[11], ARGV[5], ARGV[4])
return {'ok', 0}

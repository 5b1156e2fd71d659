-- Put another entry in the place of one: add it, at once or later, and settle the old, only while that is still there.
-- KEYS 1 stream, 2 stream of the new, 3 delayed, 4 delayed bodies
-- ARGV 1 group, 2 entry id, 3 delay ms, 4 member of the delayed set, 5 q|w of the new, 6.. its fields
-- ok: was there 0|1
-- include: carrier
-- include: time
-- include: slice
-- include: delayed
if #redis.call('XRANGE', KEYS[1], ARGV[2], ARGV[2]) == 0 then
  settle_carrier(KEYS[1], ARGV[1], ARGV[2]) -- pending without a body: nothing can be read of it any more
  return {'ok', 0}
end
if tonumber(ARGV[3]) > 0 then
  delay(KEYS[3], KEYS[4], ARGV[4], now_ms() + ARGV[3], ARGV[5], slice(ARGV, 6, #ARGV))
else
  redis.call('XADD', KEYS[2], '*', unpack(ARGV, 6))
end
settle_carrier(KEYS[1], ARGV[1], ARGV[2])
return {'ok', 1}

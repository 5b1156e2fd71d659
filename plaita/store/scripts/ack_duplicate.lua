-- Settle a carrier whose execution another one holds: only while that other, the one named in the lease, is in its
-- stream. Asked here and not before the call: what was a duplicate may be the last carrier by now (DECISIONS 3).
-- KEYS 1 lease, 2 stream of the entry, 3 queue, 4 wake. ARGV 1 group, 2 q|w, 3 entry id
-- ok: was pending 0|1. refused: not_leased, holders_own, unreadable (lease), carrier_gone (lease)
-- include: lease
-- include: carrier
local lease = redis.call('GET', KEYS[1])
if not lease then
  return {'refused', 'not_leased'}
end
local _, _, letter, id = lease_words(lease)
if not letter then
  return {'refused', 'unreadable', lease}
end
if letter == ARGV[2] and id == ARGV[3] then
  return {'refused', 'holders_own', lease}
end
local stream = letter == 'q' and KEYS[3] or KEYS[4]
local there = redis.pcall('XPENDING', stream, ARGV[1], id, id, 1)
if there.err or #there == 0 or #redis.call('XRANGE', stream, id, id) == 0 then
  return {'refused', 'carrier_gone', lease}
end
return {'ok', settle_carrier(KEYS[2], ARGV[1], ARGV[3])}

-- Dead letter and ack in one call, only while the entry is still there: sent twice, it stands there once.
-- KEYS 1 stream, 2 dead letters. ARGV 1 group, 2 entry id, 3 dead letters at most, 4.. words of the dead letter
-- ok: dead letter id or '', trimmed
-- include: carrier
-- include: slice
-- include: dead_letter
local there = #redis.call('XRANGE', KEYS[1], ARGV[2], ARGV[2]) > 0
local id, trimmed = '', 0
if there then
  id, trimmed = add_dead_letter(KEYS[2], ARGV[3], slice(ARGV, 4, #ARGV))
end
settle_carrier(KEYS[1], ARGV[1], ARGV[2])
return {'ok', id, trimmed}

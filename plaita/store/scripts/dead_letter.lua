-- Dead letter, recovery copy and ack in one call, only while the entry is still there: sent twice, each stands there once.
-- KEYS 1 stream, 2 dead letters, 3 wake stream, then, where the carrier's execution is known: 4 row, 5 lease, 6 tombstone,
--      7 noderetry of the execution
-- ARGV 1 group, 2 entry id, 3 dead letters at most, 4 tenant, 5 mark of the facts that allow it (with KEYS 4-7),
--      6 number n of dead letter words, 7..6+n those, then the words of the recovery copy
-- ok: dead letter id or '', trimmed (-1 failed), id of the copy or ''. refused: changed (the facts are others now)
-- include: carrier
-- include: slice
-- include: dead_letter
-- include: guard
local id, trimmed, copy = '', 0, ''
if #redis.call('XRANGE', KEYS[1], ARGV[2], ARGV[2]) > 0 then
  if KEYS[4] and guard_mark(guard_facts(KEYS[4], KEYS[5], KEYS[6], KEYS[7], ARGV[4])) ~= ARGV[5] then
    return {'refused', 'changed'}
  end
  local words = tonumber(ARGV[6])
  id, trimmed = add_dead_letter(KEYS[2], ARGV[3], slice(ARGV, 7, 6 + words))
  if #ARGV > 6 + words then
    copy = redis.call('XADD', KEYS[3], '*', unpack(ARGV, 7 + words))
  end
end
settle_carrier(KEYS[1], ARGV[1], ARGV[2])
return {'ok', id, trimmed, copy}

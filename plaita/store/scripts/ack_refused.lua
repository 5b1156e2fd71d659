-- Settle a carrier that begin refused for the row's status: only while that is so still. What has gone on meanwhile, by a
-- retry or the end of a wait, may have no other carrier by now; sent after it, a judgement of before would lose this one.
-- KEYS 1 row, 2 cancel, 3 stream. ARGV 1 group, 2 entry id, 3 the status it was refused for, '' for no row
-- ok: was pending 0|1. refused: changed (status)
-- include: waits
-- include: carrier
local row = redis.pcall('HMGET', KEYS[1], 'status', 'woken')
local status = not row.err and row[1] or ''
if row.err or status ~= ARGV[3] then
  return {'refused', 'changed', status}
end
if status == 'suspended' and (given(row[2]) or redis.call('EXISTS', KEYS[2]) == 1) then
  return {'refused', 'changed', status}
end
return {'ok', settle_carrier(KEYS[3], ARGV[1], ARGV[2])}

-- Ask for an end (ledger S8).
-- KEYS 1 row, 2 lease, 3 cancel, 4 wake stream, 5 tombstone
-- ARGV 1 reason, 2 flag ttl ms, 3 tenant, 4.. carrier fields
-- ok: the status now. refused: no_row, tombstoned (when, why)
-- include: lease
local tombstone = redis.call('HGET', KEYS[5], ARGV[3])
if tombstone then
  return {'refused', 'tombstoned', tombstone}
end
local status = redis.call('HGET', KEYS[1], 'status')
if not status then
  return {'refused', 'no_row'}
end
if TERMINAL[status] then
  return {'ok', status}
end
-- a live lease has a holder who reads the flag; what is suspended has none, whatever lease a backup brought back
if status == 'suspended' or redis.call('EXISTS', KEYS[2]) == 0 then
  redis.call('XADD', KEYS[4], '*', unpack(ARGV, 4))
end
redis.call('SET', KEYS[3], ARGV[1], 'PX', ARGV[2])
return {'ok', status}

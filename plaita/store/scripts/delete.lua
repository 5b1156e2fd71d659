-- Delete = revoke (ledger D1, D2).
-- KEYS 1 row, 2 lease, 3 fence, 4 fencegen, 5 cancel, 6 noderetry, 7 noderefetch, 8 nofail, 9 g1wakeups, 10 tombstone,
--      11 index, 12 expiry, 13 delayed, 14 delayed bodies
-- ARGV 1 id, 2 tenant, 3 reason, 4 force 0|1, 5 tombstone ttl ms, 6 ns, 7 token or ''
-- ok: row existed 0|1, deleted at ms. refused: no_row, running (status), fence (the one there)
-- include: time
-- include: remove
local row = redis.call('HMGET', KEYS[1], 'status', 'retried', 'dedup_key', 'wait')
local tombstone = redis.call('HGET', KEYS[10], ARGV[2])
if not row[1] and not tombstone then
  return {'refused', 'no_row'}
end
if ARGV[7] ~= '' and row[1] then -- a holder deletes what it still holds, never what is another's by now (ledger L2, D1)
  local fence = redis.call('MGET', KEYS[3], KEYS[4])
  if fence[1] ~= ARGV[7] or fence[2] ~= string.match(ARGV[7], '^%d+') then
    return {'refused', 'fence', fence[1] or ''}
  end
end
if ARGV[4] == '0' and (row[1] == 'running' or redis.call('EXISTS', KEYS[2]) == 1) then
  return {'refused', 'running', row[1] or ''}
end
local deleted_at = tombstone and tonumber(string.match(tombstone, '^%d+')) or now_ms()
if not tombstone then
  redis.call('HSET', KEYS[10], ARGV[2], text(deleted_at) .. ' ' .. ARGV[3])
end
local ttl = tonumber(ARGV[5])
if redis.call('PTTL', KEYS[10]) < ttl then -- never shorter, never for ever
  redis.call('PEXPIRE', KEYS[10], ttl)
end
if redis.call('EXISTS', KEYS[4]) == 1 then
  -- One that nobody was ever given: row and fence out of a backup give the last holder no right to them. It outlives
  -- every late save (DECISIONS 17).
  redis.call('INCR', KEYS[4])
  redis.call('PEXPIRE', KEYS[4], ttl)
end
end_wait(KEYS[1], KEYS[13], KEYS[14], ARGV[6], ARGV[1], row[4])
remove_row(ARGV[6], ARGV[1], row[1], row[2], row[3])
return {'ok', row[1] and 1 or 0, deleted_at}

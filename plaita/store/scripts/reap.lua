-- End a running row that nobody runs as error, only while it is as it was seen and nobody holds it (ledger D6).
-- KEYS 1 row, 2 lease, 3 cancel, 4 noderetry, 5 fence, 6 fencegen, 7 nofail, 8 g1wakeups, 9 index of running,
--      10 index of error, 11 expiry
-- ARGV 1 id, 2 mark, 3 retention ms (0 for ever), 4 ttl of the row ms, 5.. fields of the row, `error` first
-- ok: reaped, leased or changed
-- include: time
-- include: retried
local row = redis.pcall('HMGET', KEYS[1], 'status', 'last_update_time', 'commit', 'attempts', 'created_at', 'retried',
  'error')
if row[1] == 'error' and row[7] == ARGV[6] then
  return {'ok', 'reaped'} -- sent again
end
if row.err or row[1] ~= 'running' or table.concat({row[2] or '', row[3] or '', row[4] or ''}, '\n') ~= ARGV[2] then
  return {'ok', 'changed'}
end
if redis.call('EXISTS', KEYS[2]) == 1 then
  return {'ok', 'leased'}
end
local now = text(now_ms())
redis.call('HSET', KEYS[1], 'status', 'error', 'ended_at', now, 'last_update_time', now, unpack(ARGV, 5))
redis.call('HDEL', KEYS[1], 'retried', 'cancel_signalled_at')
local gone = {KEYS[3], KEYS[4]}
retried_keys(row[6], KEYS[4], gone)
redis.call('DEL', unpack(gone))
redis.call('ZREM', KEYS[9], ARGV[1])
redis.call('ZADD', KEYS[10], row[5] or now, ARGV[1])
if tonumber(ARGV[3]) > 0 then
  redis.call('ZADD', KEYS[11], text(now_ms() + ARGV[3]), ARGV[1])
  for _, at in ipairs({1, 5, 6, 7, 8}) do
    redis.call('PEXPIRE', KEYS[at], ARGV[4])
  end
end
return {'ok', 'reaped'}

-- Whether an execution still waits, and this host reads for it.
-- KEYS 1 row, 2 tombstone, 3 lock. ARGV 1 tenant, 2 execution id, 3 ns, 4 wait, 5 since, 6 holder. ok: 0|1
-- include: bridge
-- include: wait_end
local row = redis.pcall('HMGET', KEYS[1], 'status', 'wait', 'woken', 'wait_since')
local over = row.err or not still_waits(row, ARGV[4], ARGV[5]) or redis.call('HEXISTS', KEYS[2], ARGV[1]) == 1
  or cancel_is_asked(ARGV[3], ARGV[2]) or redis.call('GET', KEYS[3]) ~= ARGV[6]
return {'ok', over and 0 or 1}

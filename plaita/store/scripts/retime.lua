-- The timer of a wait that has lost it, by the deadline in its row (ledger D4, DECISIONS 29).
-- KEYS 1 row, 2 delayed, 3 delayed bodies. ARGV 1 ns, 2 execution id, 3 wait, 4.. carrier fields. ok: put back 0|1
-- include: time
-- include: slice
-- include: waits
-- include: delayed
local row = redis.pcall('HMGET', KEYS[1], 'status', 'wait', 'woken', 'wait_deadline')
if row.err or row[1] ~= 'suspended' or row[2] ~= ARGV[3] or given(row[3]) or not given(row[4]) then
  return {'ok', 0} -- it was woken meanwhile
end
local name = timer_name(ARGV[1], ARGV[2], ARGV[3])
local timer = slice(ARGV, 4, #ARGV)
table.insert(timer, 1, KEYS[1])
table.insert(timer, 2, ARGV[3])
delay(KEYS[2], KEYS[3], name, row[4], 't', timer)
return {'ok', 1}

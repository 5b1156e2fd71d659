-- Save one step. The hot path: four calls, and nothing that grows with the steps before (ledger F9).
-- KEYS 1 row, 2 fence, 3 fencegen, 4 lease, 5 cancel, 6 nofail, 7 noderetry of this node
-- ARGV 1 token, 2 step, 3 lease ttl ms, 4 lease value, 5 active ms delta, 6 key part of the node, 7.. fields of this step
-- ok: 0, 1 done before or 2 the lease was taken back, the reason of a cancel or nil. refused: see lib/settle
-- include: settle
-- include: retried
local refusal, row, flags, done = check('commit', ARGV[4])
if refusal then
  return refusal
end
local cancel = flags[4]
if done then
  return {'ok', 1, cancel}
end
local last = #ARGV
ARGV[last + 1], ARGV[last + 2] = 'active_ms', active_ms(row, ARGV[5])
ARGV[last + 3], ARGV[last + 4] = 'last_update_time', text(now_ms())
if retried_has(row[5], ARGV[6]) then
  redis.call('DEL', KEYS[7])
  ARGV[last + 5], ARGV[last + 6] = 'retried', retried_without(row[5], ARGV[6])
end
blank_wait(row)
write_row(7)
if flags[5] then
  redis.call('DEL', KEYS[6])
end
if not flags[3] then
  redis.call('SET', KEYS[4], ARGV[4], 'PX', ARGV[3])
  return {'ok', 2, cancel}
end
return {'ok', 0, cancel}

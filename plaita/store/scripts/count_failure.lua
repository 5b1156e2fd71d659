-- A node raised: count it for the node and for the execution, once a (token, step) (ledger S11, S12).
-- KEYS 1 row, 2 fence, 3 fencegen, 4 lease, 5 cancel, 6 nofail, 7 noderetry of the node, 8 noderefetch
-- ARGV 1 token, 2 step, 3 counter ttl ms, 4 key part of the node
-- ok: failures of the node in a row, failures of all nodes. refused: see lib/settle
-- include: settle
-- include: retried
local refusal, row = check('count')
if refusal then
  return refusal
end
local mark = ARGV[1] .. '|' .. ARGV[2]
if redis.call('HGET', KEYS[1], 'failure') == mark then
  return {'ok', tonumber(redis.call('GET', KEYS[7])) or 1, tonumber(redis.call('GET', KEYS[8])) or 1}
end
local of_node, of_all = redis.call('INCR', KEYS[7]), redis.call('INCR', KEYS[8])
redis.call('PEXPIRE', KEYS[7], ARGV[3])
redis.call('PEXPIRE', KEYS[8], ARGV[3])
redis.call('HSET', KEYS[1], 'failure', mark)
if not retried_has(row[5], ARGV[4]) then
  redis.call('HSET', KEYS[1], 'retried', (row[5] or ':') .. ARGV[4] .. ':')
end
return {'ok', of_node, of_all}

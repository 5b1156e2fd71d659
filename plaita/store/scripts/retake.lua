-- After an executor's death, its supervisor goes on under a new token (DECISIONS 7, 8).
-- KEYS 1 row, 2 lease, 3 fence, 4 fencegen, 5 cancel
-- ARGV 1 id, 2 holder, 3 nonce, 4 ttl ms, 5 q|w, 6 entry id, 7 max lost, 8 old token, 9 death record, 10 active ms delta
-- ok: see lib/begun. refused: no_row, terminal (status), not_running (status), lease_lost (the lease or fence there)
-- include: begun
local row = redis.call('HMGET', KEYS[1], 'status', 'next_node', 'lost', 'lost_node', 'active_ms')
if not row[1] then
  return {'refused', 'no_row'}
end
if TERMINAL[row[1]] then
  return {'refused', 'terminal', row[1]}
end
if row[1] ~= 'running' then
  return {'refused', 'not_running', row[1]}
end
local lease = redis.call('GET', KEYS[2])
local before = held_before(lease)
if before and before ~= ARGV[8] then
  return begun(before, lease)
end
if lease and not lease_is(lease, ARGV[8]) then
  return {'refused', 'lease_lost', lease}
end
-- An expired lease that nobody took is still ours by the fence, as for a commit (DECISIONS 9).
local fence = redis.call('GET', KEYS[3])
if fence ~= ARGV[8] or redis.call('GET', KEYS[4]) ~= string.match(ARGV[8], '^%d+') then
  return {'refused', 'lease_lost', fence or ''}
end
local token
token, lease = acquire()
local next_node = row[2] or ''
redis.call('HSET', KEYS[1], 'lost', text(handed_out(row[3], row[4], next_node)), 'lost_node', next_node, 'death', ARGV[9],
  'active_ms', text((tonumber(row[5]) or 0) + tonumber(ARGV[10])), 'last_update_time', text(now_ms()))
return begun(token, lease)

-- Release the lease and make the carrier claimable at once (DECISIONS 5). JUSTID: it costs no delivery.
-- KEYS 1 row, 2 lease, 3 stream, 4 fence, 5 fencegen
-- ARGV 1 token, 2 entry id, 3 group, 4 consumer, 5 active ms delta, 6 lower lost 0|1, 7 idle ms
-- ok: entry handed on 0|1. refused: lease_lost (the lease there)
-- include: lease
-- include: time
-- include: claimable
local lease = redis.call('GET', KEYS[2])
if not lease or not lease_is(lease, ARGV[1]) then
  return {'refused', 'lease_lost', lease or ''}
end
-- The row is written under the fence like everywhere (ledger L2): a lease that came back with a backup gives no right.
local row = redis.call('HMGET', KEYS[1], 'status', 'lost', 'active_ms')
local fence = redis.call('MGET', KEYS[4], KEYS[5])
if row[1] == 'running' and fence[1] == ARGV[1] and fence[2] == string.match(ARGV[1], '^%d+') then
  local lost = tonumber(row[2]) or 0
  if ARGV[6] == '1' then
    lost = math.max(0, lost - 1)
  end
  redis.call('HSET', KEYS[1], 'lost', text(lost), 'active_ms', text((tonumber(row[3]) or 0) + tonumber(ARGV[5])),
    'last_update_time', text(now_ms()))
end
redis.call('DEL', KEYS[2])
return {'ok', make_claimable(KEYS[3], ARGV[3], ARGV[4], ARGV[2], ARGV[7])}

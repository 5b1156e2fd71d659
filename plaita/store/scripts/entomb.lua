-- Tombstones for executions that may have no row yet: a carrier of one begins nothing any more (ledger D2, T4).
-- KEYS tombstones. ARGV 1 tenant, 2 reason, 3 tombstone ttl ms. ok: how many are new
-- include: time
local ttl, said, new = tonumber(ARGV[3]), text(now_ms()) .. ' ' .. ARGV[2], 0
for _, key in ipairs(KEYS) do
  new = new + redis.call('HSETNX', key, ARGV[1], said) -- the first deleted_at stays
  if redis.call('PTTL', key) < ttl then -- never shorter, never for ever
    redis.call('PEXPIRE', key, ttl)
  end
end
return {'ok', new}

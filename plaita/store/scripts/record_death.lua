-- Write down how a life of an instance ended (ledger S14).
-- KEYS 1 incarnation of the instance, 2 its deaths. ARGV 1 incarnation, 2 record, 3 how many to keep, 4 ttl ms
-- ok: written now 0|1. refused: another (the incarnation there)
local there = redis.call('GET', KEYS[1])
if there ~= ARGV[1] then
  return {'refused', 'another', there or ''}
end
local head = ARGV[1] .. ' '
for _, entry in ipairs(redis.call('LRANGE', KEYS[2], 0, -1)) do
  if string.sub(entry, 1, #head) == head then
    return {'ok', 0}
  end
end
redis.call('LPUSH', KEYS[2], head .. ARGV[2])
redis.call('LTRIM', KEYS[2], 0, ARGV[3] - 1)
redis.call('PEXPIRE', KEYS[2], ARGV[4])
return {'ok', 1}

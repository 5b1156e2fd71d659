-- An HTTP call came before the execution waits for it; the first one counts.
-- KEYS 1 calls that are kept. ARGV 1 name of the place, 2 record, 3 most of them
-- ok: kept now 1, or the same before 1, another before 0. refused: full
local before = redis.call('HGET', KEYS[1], ARGV[1])
if before then
  return {'ok', before == ARGV[2] and 1 or 0}
end
if redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[3]) then
  return {'refused', 'full'}
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return {'ok', 1}

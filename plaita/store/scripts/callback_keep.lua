-- An HTTP call came before the execution waits for it; the first one counts. Whoever suspends looks for it in the call that
-- makes the wait: so it is kept only while the execution is where it was seen to be.
-- KEYS 1 calls that are kept, 2 row. ARGV 1 name of the place, 2 record, 3 most of them, 4 status, 5 step or ''
-- ok: kept now 1, or the same before 1, another before 0. refused: full, moved
local row = redis.pcall('HMGET', KEYS[2], 'status', 'step')
if row.err or row[1] ~= ARGV[4] or (row[2] or '') ~= ARGV[5] then
  return {'refused', 'moved'}
end
local before = redis.call('HGET', KEYS[1], ARGV[1])
if before then
  return {'ok', before == ARGV[2] and 1 or 0}
end
if redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[3]) then
  return {'refused', 'full'}
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return {'ok', 1}

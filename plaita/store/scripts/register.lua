-- Write an instance's record unless the id is another incarnation's (DECISIONS 1).
-- KEYS 1 record, 2 incarnation, 3 instances. ARGV 1 instance, 2 incarnation, 3 record, 4 ttl ms, 5 expected incarnation or '',
--      6 ttl ms of the incarnation: it outlives the record, so that a death can still be told of whose it was
-- refused: taken (the record there)
-- include: time
local record, incarnation = redis.call('GET', KEYS[1]), redis.call('GET', KEYS[2])
if record and incarnation ~= ARGV[2] and (ARGV[5] == '' or incarnation ~= ARGV[5]) then
  return {'refused', 'taken', record}
end
redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[4])
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[6])
redis.call('ZADD', KEYS[3], text(now_ms()), ARGV[1])
return {'ok'}

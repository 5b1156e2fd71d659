-- Nothing is left to do for a wait.
-- KEYS 1 records, 2 lock. ARGV 1 digest, 2 holder. ok
redis.call('HDEL', KEYS[1], ARGV[1], ARGV[1] .. ':ended', ARGV[1] .. ':over')
if redis.call('GET', KEYS[2]) == ARGV[2] then
  redis.call('DEL', KEYS[2])
end
return {'ok'}

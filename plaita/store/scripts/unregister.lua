-- KEYS 1 record, 2 incarnation, 3 instances. ARGV 1 instance, 2 incarnation, 3 last record or '', 4 its ttl ms. ok: was ours 0|1
if redis.call('GET', KEYS[2]) ~= ARGV[2] then
  return {'ok', 0}
end
if ARGV[3] == '' then
  redis.call('DEL', KEYS[1], KEYS[2])
  redis.call('ZREM', KEYS[3], ARGV[1])
else
  redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[4])
  redis.call('PEXPIRE', KEYS[2], ARGV[4])
end
return {'ok', 1}

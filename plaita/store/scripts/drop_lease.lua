-- KEYS 1 lease. ARGV 1 its value. ok: dropped 0|1
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return {'ok', 0}
end
return {'ok', redis.call('DEL', KEYS[1])}

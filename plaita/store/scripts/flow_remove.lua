-- KEYS 1 versions, 2 meta, 3 flow list. ARGV 1 flow. ok: how many versions there were. refused: no_flow
local count = redis.call('HLEN', KEYS[1])
if count == 0 then
  return {'refused', 'no_flow'}
end
redis.call('DEL', KEYS[1], KEYS[2])
redis.call('SREM', KEYS[3], ARGV[1])
return {'ok', count}

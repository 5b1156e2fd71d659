-- Key sets of one event type that nobody uses any more. KEYS 1 hash of key sets. ok: taken out
local flat, dropped = redis.call('HGETALL', KEYS[1]), 0
for i = 1, #flat, 2 do
  if redis.call('EXISTS', flat[i + 1]) == 0 then
    dropped = dropped + redis.call('HDEL', KEYS[1], flat[i])
  end
end
return {'ok', dropped}

-- Whether it is the caller's turn: one in so long, and at once where the clock went back behind the last one.
-- KEYS 1 when the last one was. ARGV 1 how long ms. ok: 0|1
-- include: time
local said = redis.pcall('GET', KEYS[1])
local last = type(said) == 'string' and tonumber(said) or nil
if last and last <= now_ms() and now_ms() - last < tonumber(ARGV[1]) then
  return {'ok', 0}
end
redis.call('SET', KEYS[1], text(now_ms()))
return {'ok', 1}

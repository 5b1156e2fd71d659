-- This host stops: others may take its waits at once.
-- KEYS locks. ARGV 1 holder. ok: how many were its own
local released = 0
for _, key in ipairs(KEYS) do
  if redis.call('GET', key) == ARGV[1] then
    released = released + redis.call('DEL', key)
  end
end
return {'ok', released}

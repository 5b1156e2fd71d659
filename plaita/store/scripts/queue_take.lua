-- On the server of a list: move messages to the list of one wait, where they stay until it is known whether they ended it. What
-- stands there already is answered again, and nothing is added to it.
-- KEYS 1 queue, 2 list of the wait, 3 mark that the wait is over. ARGV 1 how many, 2 bytes of all that an answer may hold
-- ok: {message, ...}, their bytes; one that alone has more is answered by its first 200 bytes. refused: closed
if redis.call('EXISTS', KEYS[3]) == 1 then
  return {'refused', 'closed'}
end
local most, bytes = tonumber(ARGV[2]), 0
if redis.call('LLEN', KEYS[2]) == 0 then
  for i = 1, tonumber(ARGV[1]) do
    local message = redis.call('LMOVE', KEYS[1], KEYS[2], 'LEFT', 'RIGHT')
    if not message then
      break
    end
    bytes = bytes + #message
    if bytes > most and i > 1 then
      redis.call('LMOVE', KEYS[2], KEYS[1], 'RIGHT', 'LEFT') -- the next wait's
      break
    end
  end
end
bytes = 0
local messages = redis.call('LRANGE', KEYS[2], 0, -1)
for _, message in ipairs(messages) do
  bytes = bytes + #message
end
if bytes > most then
  messages = {string.sub(messages[1], 1, 200)}
end
return {'ok', messages, bytes}

-- On the server of a list: move messages to the list of one wait, where they stay until it is known whether they ended it. What
-- stands there already is answered again, and nothing is added to it.
-- KEYS 1 queue, 2 list of the wait, 3 mark that the wait is over. ARGV 1 how many
-- ok: {message, ...}. refused: closed
if redis.call('EXISTS', KEYS[3]) == 1 then
  return {'refused', 'closed'}
end
if redis.call('LLEN', KEYS[2]) == 0 then
  for _ = 1, tonumber(ARGV[1]) do
    if not redis.call('LMOVE', KEYS[1], KEYS[2], 'LEFT', 'RIGHT') then
      break
    end
  end
end
return {'ok', redis.call('LRANGE', KEYS[2], 0, -1)}

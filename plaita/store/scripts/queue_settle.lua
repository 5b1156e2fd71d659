-- On the server of a list: the wait is over, nobody takes messages for it any more. The first of those it had taken are used or
-- put aside; the others go back to the head of the queue in their order.
-- KEYS 1 queue, 2 list of the wait, 3 mark that the wait is over, 4 list of what was put aside. ARGV 1 used|bad and of how
-- many, of all without a number; or back, 2 ms of the mark. ok: how many messages there were
redis.call('SET', KEYS[3], '1', 'PX', ARGV[2])
local count = redis.call('LLEN', KEYS[2])
local word, of = string.match(ARGV[1], '^(%a+) ?(%d*)$')
local first = word == 'back' and 0 or math.min(count, tonumber(of) or count)
for _ = 1, count - first do
  redis.call('LMOVE', KEYS[2], KEYS[1], 'RIGHT', 'LEFT')
end
if word == 'bad' then
  for _ = 1, first do
    redis.call('LMOVE', KEYS[2], KEYS[4], 'LEFT', 'RIGHT')
  end
else
  redis.call('DEL', KEYS[2])
end
return {'ok', count}

-- On the server of a list: the wait is over, nobody takes messages for it any more. Those it had taken are used, or go back to
-- the head of the queue in their order, or are put aside.
-- KEYS 1 queue, 2 list of the wait, 3 mark that the wait is over, 4 list of what was put aside. ARGV 1 used|back|bad, 2 ms of
-- the mark. ok: how many messages there were
redis.call('SET', KEYS[3], '1', 'PX', ARGV[2])
local count = redis.call('LLEN', KEYS[2])
if ARGV[1] == 'used' then
  redis.call('DEL', KEYS[2])
elseif ARGV[1] == 'bad' then
  for _ = 1, count do
    redis.call('LMOVE', KEYS[2], KEYS[4], 'LEFT', 'RIGHT')
  end
else
  for _ = 1, count do
    redis.call('LMOVE', KEYS[2], KEYS[1], 'RIGHT', 'LEFT')
  end
end
return {'ok', count}

-- Remove terminal rows whose retention is over (DECISIONS 17). KEYS 1 expiry, 2 index, 3 delayed, 4 delayed bodies.
-- ARGV 1 ns, 2 how many at most
-- ok: removed
-- include: time
-- include: lease
-- include: remove
local removed = 0
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', text(now_ms()), 'LIMIT', 0, ARGV[2])) do
  local key = ARGV[1] .. ':execution:' .. execution_part(id)
  local row = redis.call('HMGET', key, 'status', 'retried', 'wait')
  if row[1] and not TERMINAL[row[1]] then
    redis.call('ZREM', KEYS[1], id) -- woken again since
  else
    end_wait(key, KEYS[3], KEYS[4], ARGV[1], id, row[3])
    remove_row(ARGV[1], id, row[1], row[2]) -- the dedup claim has its own time
    redis.call('DEL', ARGV[1] .. ':execution:fencegen:' .. execution_part(id))
    removed = removed + 1
  end
end
return {'ok', removed}

-- An event into the log, and, when it is correlated, among those kept for who does not wait yet (DECISIONS 27). One id is
-- one event. KEYS 1 log, 2 that this id was seen, 3 kept events or ''
-- ARGV 1 event id, 2 how long the id is known ms, 3 how long events are kept ms, 4 how many of one correlation at most,
--      5 what a node gets of it, 6.. fields of the log entry
-- ok: log id, published before 0|1
-- include: time
local seen = redis.call('GET', KEYS[2])
if seen then
  return {'ok', seen, 1}
end
local now = text(now_ms())
local id = redis.call('XADD', KEYS[1], '*', 'timestamp', now, unpack(ARGV, 6))
redis.call('SET', KEYS[2], id, 'PX', ARGV[2])
if KEYS[3] ~= '' then
  if redis.call('HLEN', KEYS[3]) >= tonumber(ARGV[4]) then -- the oldest goes
    local oldest, name
    local all = redis.call('HGETALL', KEYS[3])
    for i = 1, #all, 2 do
      local at = cmsgpack.unpack(all[i + 1])[1]
      if not oldest or tonumber(at) < oldest then
        oldest, name = tonumber(at), all[i]
      end
    end
    redis.call('HDEL', KEYS[3], name)
  end
  redis.call('HSET', KEYS[3], ARGV[1], cmsgpack.pack({now, id, ARGV[5]}))
  redis.call('PEXPIRE', KEYS[3], ARGV[3])
end
return {'ok', id, 0}

-- An event into the log, and, when it is correlated, among those kept for who does not wait yet (DECISIONS 27). One id is
-- one event. KEYS 1 log, 2 id of its newest entry, 3 that this id was seen, 4 kept events or ''
-- ARGV 1 event id, 2 how long the id is known ms, 3 how long events are kept ms, 4 how many of one correlation at most,
--      5 what a node gets of it, 6.. fields of the log entry
-- ok: log id, published before 0|1
-- include: time
-- include: log_order
local seen = redis.call('GET', KEYS[3])
if seen then
  return {'ok', seen, 1}
end
local now = text(now_ms())

-- Waits tell older events from newer ones by these ids: they go up even where the log was taken away and the clock set back.
local function next_id()
  local last = redis.call('GET', KEYS[2])
  if not last or redis.call('EXISTS', KEYS[1]) == 1 or is_later(now .. '-0', last) then
    return '*'
  end
  local ms, number = order_of(last)
  return text(ms) .. '-' .. text(number + 1)
end

-- What nobody has read for so long is of no use any more: a log without a reader must not grow for ever.
local oldest = text(math.max(0, now_ms() - tonumber(ARGV[3])))
local id = redis.call('XADD', KEYS[1], 'MINID', '~', oldest, next_id(), 'timestamp', now, unpack(ARGV, 6))
redis.call('SET', KEYS[2], id)
redis.call('SET', KEYS[3], id, 'PX', ARGV[2])
if KEYS[4] ~= '' then
  redis.call('RPUSH', KEYS[4], cmsgpack.pack({ARGV[1], now, id, ARGV[5]}))
  redis.call('LTRIM', KEYS[4], -tonumber(ARGV[4]), -1)
  redis.call('PEXPIRE', KEYS[4], ARGV[3])
end
return {'ok', id, 0}

-- Move what is due to its stream, record by record: a bad one goes to the dead letters and stops nothing; where these take
-- it not, it comes again after a minute.
-- KEYS 1 delayed, 2 bodies, 3 wake, 4 queue, 5 dead letters. ARGV 1 how many at most, 2 dead letters at most
-- ok: moved, ms until the next is due (-1 none), bad, dead letters trimmed (-1 failed)
-- include: record
-- include: time
-- include: slice
-- include: dead_letter
-- include: wait_end
local now, moved, bad, trimmed = now_ms(), 0, 0, 0

local LEAST = {q = 3, w = 3, t = 5}
local AGAIN = 60000

local function fields_of(body)
  local fields = record_of(body)
  local least = fields and LEAST[fields[1]]
  return least and #fields >= least and fields or nil
end

-- The time of a wait is over: the row still waits on this very one -> marked and woken; else the timer is of the past.
local function time_is_over(timer)
  local row = redis.pcall('HMGET', timer[2], 'status', 'wait', 'woken')
  if row.err or row[1] ~= 'suspended' or row[2] ~= timer[3] or given(row[3]) then
    return false
  end
  -- The carrier first: should the stream not take it, the row still waits, and the timer stands.
  timer[#timer + 1], timer[#timer + 2] = 'wait', timer[3]
  redis.call('XADD', KEYS[3], '*', unpack(timer, 4))
  -- A cancel that is asked for ends the wait, and has a carrier; this one comes to the same, should that be lost.
  local cancel = string.gsub(timer[2], '([^:]+)$', 'cancel:%1')
  if redis.call('EXISTS', cancel) == 0 then
    redis.call('HSET', timer[2], 'woken', 'timeout', 'wake_data', 'null', 'wake_id', '', 'last_update_time', text(now))
    unsubscribe(timer[2])
  end
  return true
end

local function set_aside(member, body)
  local fine, _, lost = pcall(add_dead_letter, KEYS[5], ARGV[2], {
    'reason', 'delayed_record_unreadable', 'source_stream', KEYS[1], 'source_id', member, 'schema_version', '1',
    'dead_lettered_at', text(now), 'raw_body', type(body) == 'string' and body or '',
  })
  bad = bad + 1
  if fine then
    trimmed = (lost < 0 or trimmed < 0) and -1 or trimmed + lost
  end
  return fine
end

for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', text(now), 'LIMIT', 0, ARGV[1])) do
  local body = redis.pcall('HGET', KEYS[2], member)
  local fields, done = fields_of(body), true
  if fields and fields[1] == 't' then
    moved = moved + (time_is_over(fields) and 1 or 0)
  elseif fields then
    redis.call('XADD', fields[1] == 'q' and KEYS[4] or KEYS[3], '*', unpack(fields, 2))
    moved = moved + 1
  else
    done = set_aside(member, body)
  end
  if done then
    redis.call('ZREM', KEYS[1], member)
    redis.pcall('HDEL', KEYS[2], member)
  else
    redis.call('ZADD', KEYS[1], text(now + AGAIN), member)
  end
end
local first = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
return {'ok', moved, first[2] and math.min(math.max(0, tonumber(first[2]) - now), 2 ^ 53) or -1, bad, trimmed}

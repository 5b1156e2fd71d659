-- include: lease
-- include: time
-- What begin and retake do to the row and answer.
-- KEYS 1 row, 2 lease, 3 fence, 4 fencegen, 5 cancel. ARGV 1 execution id, 2 holder, 3 nonce, 4 ttl ms, 5 q|w,
-- 6 entry id, 7 max lost.

local CHUNK = 1000 -- Lua cannot unpack more than about 8000 values

-- {'ok', token, lease value, now, exhausted, cancel, control and timings, result sizes, state sizes, how it was begun}
local function begun(token, lease, how)
  local wanted, results, states = {}, {}, {}
  for _, name in ipairs(redis.call('HKEYS', KEYS[1])) do
    local head = string.sub(name, 1, 2)
    local sizes = head == 'r:' and results or head == 's:' and states
    if sizes then
      sizes[#sizes + 1] = string.sub(name, 3)
      sizes[#sizes + 1] = redis.call('HSTRLEN', KEYS[1], name)
    elseif name ~= 'output' and name ~= 'used_events' then
      wanted[#wanted + 1] = name
    end
  end
  local fields, lost = {}, 0
  for from = 1, #wanted, CHUNK do
    local to = math.min(from + CHUNK - 1, #wanted)
    local values = redis.call('HMGET', KEYS[1], unpack(wanted, from, to))
    for i = from, to do
      fields[#fields + 1] = wanted[i]
      fields[#fields + 1] = values[i - from + 1]
      if wanted[i] == 'lost' then
        lost = tonumber(values[i - from + 1]) or 0
      end
    end
  end
  return {
    'ok', token, lease, now_ms(), lost > tonumber(ARGV[7]) and 1 or 0, redis.call('GET', KEYS[5]), fields, results, states,
    how or '',
  }
end

-- The lease is ours already, under this very nonce: the call was sent before. Returns its token, or nil.
local function held_before(lease)
  if not lease then
    return nil
  end
  local holder, token = lease_words(lease)
  if holder == ARGV[2] and string.match(token, '^%d+:(.*)$') == ARGV[3] then
    return token
  end
  return nil
end

-- A new token; fence and lease are set. Returns token and lease value.
local function acquire()
  local token = redis.call('INCR', KEYS[4]) .. ':' .. ARGV[3]
  local lease = 'v2 ' .. ARGV[2] .. ' ' .. token .. ' ' .. ARGV[5] .. ' ' .. ARGV[6]
  redis.call('SET', KEYS[3], token)
  redis.call('SET', KEYS[2], lease, 'PX', ARGV[4])
  return token, lease
end

-- How often the step now handed out has been handed out without an end (DECISIONS 7).
local function handed_out(lost, lost_node, next_node)
  if lost_node == next_node then
    return (tonumber(lost) or 0) + 1
  end
  return 1
end

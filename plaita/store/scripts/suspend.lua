-- A node waits: its pending result, the wait, where events find it, the timer, the service's task, the release and the
-- ack in one call (ledger F3, DECISIONS 26, 27).
-- KEYS 1 row, 2 fence, 3 fencegen, 4 lease, 5 cancel, 6 nofail, 7 noderetry of this node, 8 index of running,
--      9 index of suspended, 10 stream of the carrier, 11 delayed, 12 delayed bodies, 13 events kept for this wait,
--      14 wake stream, 15 id of the newest entry of the event log, 16 HTTP calls that came early
-- ARGV 1 token, 2 step, which names the wait, 3 active ms delta, 4 entry id, 5 group, 6 execution id, 7 key part of the node,
--      8 timeout ms or '', 9 ns, 10 the early event that ends the wait at once, or '', 11 how long events are kept ms,
--      12 under what name an HTTP call for this wait would be kept, or '', 13 what became of that: '' not looked at yet,
--      'ends' the wait as the event 10, 'refused', 14 what the node is told of it, or '';
--      15 for what type and correlation, in short;
--      16..20 numbers of words: timer, places in the index, task, carrier of the early event, early events ruled out;
--      21.. those words in this order, then the row's fields
-- ok: done before 0|1, deadline ms or '', {event id, log id, data, ...}: events that came before the wait did, such a call
--     or ''; where there are any, nothing was written: the caller says which of them end the wait and which do not, and
--     sends again.
-- refused: see lib/settle; cancel (reason): the holder ends it instead
-- include: settle
-- include: retried
-- include: carrier
-- include: slice
-- include: delayed
-- include: wait_end
local refusal, row, flags, done = check('suspend')
if refusal then
  return refusal
end
if done then
  local wait = redis.call('HMGET', KEYS[1], 'wait', 'wait_deadline')
  return {'ok', 1, wait[1] == ARGV[2] and wait[2] or '', {}, ''}
end
if flags[4] then
  return {'refused', 'cancel', flags[4]}
end

local at, groups = 21, {}
for i = 1, 5 do
  local words = tonumber(ARGV[15 + i])
  groups[i] = slice(ARGV, at, at + words - 1)
  at = at + words
end
local timer, places, task, carrier, ruled_out = unpack(groups)
local now = now_ms()

-- Events of this type and correlation since the execution exists, less those that it has used and those ruled out, the
-- oldest first. Returns the chosen one's data, or nil and the rest: no more at once than an answer may hold.
local used = redis.call('HGET', KEYS[1], 'used_events')
local PAGE, ANSWER_BYTES = 10, 262144
local function early_events()
  local rest, out, bytes, from = {}, {}, 0, 0
  for _, id in ipairs(ruled_out) do
    out[id] = true
  end
  repeat
    local page = redis.call('LRANGE', KEYS[13], from, from + PAGE - 1)
    for _, packed in ipairs(page) do
      local id, at_ms, log_id, told = unpack(cmsgpack.unpack(packed))
      local when = tonumber(at_ms)
      local counts = when >= (tonumber(row[7]) or 0) and now - when < tonumber(ARGV[11])
      if counts and not out[id] and not event_is_used(used, id) then
        if id == ARGV[10] then
          return told
        end
        rest[#rest + 1], rest[#rest + 2], rest[#rest + 3] = id, log_id, told
        bytes = bytes + #told
      end
    end
    from = from + PAGE
  until #page < PAGE or bytes > ANSWER_BYTES
  return nil, rest
end

local data, others
if #places > 0 then
  data, others = early_events()
  if not data and #others > 0 then
    return {'ok', 0, '', others, ''}
  end
end
if ARGV[12] ~= '' then
  local call = redis.call('HGET', KEYS[16], ARGV[12])
  if call and ARGV[13] == '' then
    return {'ok', 0, '', {}, call}
  end
  if call and ARGV[13] == 'ends' then
    data = ARGV[14]
  end
end

local function set(name, value)
  ARGV[#ARGV + 1] = name
  ARGV[#ARGV + 1] = value
end
local deadline = ARGV[8] ~= '' and text(now + ARGV[8]) or ''
if data then
  set('woken', 'event')
  set('wake_data', data)
  set('wake_id', ARGV[10])
  set('used_events', with_used_event(used, ARGV[10], ARGV[15]))
  carrier[#carrier + 1], carrier[#carrier + 2] = 'wait', ARGV[2]
  redis.call('XADD', KEYS[14], '*', unpack(carrier)) -- first of all: should the stream not take it, nothing is changed
else
  if deadline ~= '' then
    table.insert(timer, 1, KEYS[1])
    table.insert(timer, 2, ARGV[2])
    delay(KEYS[11], KEYS[12], timer_name(ARGV[9], ARGV[6], ARGV[2]), deadline, 't', timer)
  end
  if #places > 0 then
    set('wait_index', (subscribe(ARGV[6], places)))
    set('wait_log', redis.call('GET', KEYS[15]) or '')
  end
  if #task > 0 then
    set('wait_task', (assign(ARGV[6], task, text(now))))
  end
end
if ARGV[12] ~= '' then
  redis.call('HDEL', KEYS[16], ARGV[12])
end
set('active_ms', active_ms(row, ARGV[3]))
set('last_update_time', text(now))
set('wait_since', text(now))
set('wait_deadline', deadline)
set('wait_group', ARGV[15])
if retried_has(row[5], ARGV[7]) then
  redis.call('DEL', KEYS[7])
  set('retried', retried_without(row[5], ARGV[7]))
end
write_row(at)
if flags[5] then
  redis.call('DEL', KEYS[6])
end
redis.call('ZREM', KEYS[8], ARGV[6])
redis.call('ZADD', KEYS[9], row[7] or text(now), ARGV[6])
redis.call('DEL', KEYS[4])
settle_carrier(KEYS[10], ARGV[5], ARGV[4])
return {'ok', 0, deadline, {}, ''}

-- include: waits
-- include: subscriptions
-- include: key_part
-- Remembered of each execution: of one type and correlation as many as are kept of it for later waits, so that none of
-- those can end a second one, whatever else the execution went through since.
local USED_OF_ONE, USED_EVENTS = 100, 1000

-- Nobody else is to end this wait: its timer, its places in the index and its task go.
local function end_wait(row, delayed, bodies, ns, id, wait)
  if given(wait) then
    local name = timer_name(ns, id, wait)
    redis.call('ZREM', delayed, name)
    redis.call('HDEL', bodies, name)
    unsubscribe(row)
  end
end

-- Once a cancel is asked for nothing else ends the wait: its node is to undo what it began (ledger S8).
local function cancel_is_asked(ns, id)
  return redis.call('EXISTS', ns .. ':execution:cancel:' .. execution_part(id)) == 1
end

-- The ids of events that woke an execution, so that none wakes it twice (DECISIONS 27): each `group:id`, encoded, a blank
-- between; the group stands for type and correlation of the wait.
local function used_part(event_id)
  return (string.gsub(key_part(event_id), '%s', function(blank)
    return string.format('%%%02X', string.byte(blank))
  end))
end

local function event_is_used(used, event_id)
  return given(used) and string.find(used .. ' ', ':' .. used_part(event_id) .. ' ', 1, true) ~= nil
end

local function with_used_event(used, event_id, group)
  local head, all, oldest, of_one = (group or '') .. ':', {}, nil, 0
  for part in string.gmatch(used or '', '%S+') do
    all[#all + 1] = part
    if string.sub(part, 1, #head) == head then
      of_one = of_one + 1
      oldest = oldest or #all
    end
  end
  if of_one >= USED_OF_ONE then
    table.remove(all, oldest)
  end
  all[#all + 1] = head .. used_part(event_id)
  return table.concat(all, ' ', math.max(1, #all - USED_EVENTS + 1))
end

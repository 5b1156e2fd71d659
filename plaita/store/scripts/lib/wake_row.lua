-- include: time
-- include: wait_end
-- Marks a suspended row as woken, takes its wait out of all places and sends its carrier: the one way in which a wait ends
-- from outside (DECISIONS 26). `by`: {kind, data, event id, whether others know the event by that id, nonce}.
-- `at`: {delayed, delayed bodies, ns, wake stream}. `used`: the row's used_events.
-- The carrier goes first: should the stream not take it, the row still waits.
local function wake_row(row, id, wait, used, by, at, carrier)
  carrier[#carrier + 1], carrier[#carrier + 2] = 'wait', wait
  redis.call('XADD', at.wake, '*', unpack(carrier))
  redis.call('HSET', row, 'woken', by.kind, 'wake_data', by.data, 'wake_id', by.event_id, 'woken_by', by.nonce,
    'last_update_time', text(now_ms()))
  if by.named and by.event_id ~= '' then
    redis.call('HSET', row, 'used_events', with_used_event(used, by.event_id, redis.call('HGET', row, 'wait_group')))
  end
  end_wait(row, at.delayed, at.bodies, at.ns, id, wait)
end

-- A wait in the row: `wait` is its id, `woken` says by what it was ended; all nine are '' when there is none.
-- The record of its timer in the delayed set is named after namespace, execution and wait.
local WAIT_FIELDS = {
  'wait', 'wait_type', 'wait_correlation', 'wait_filter', 'wait_since', 'wait_deadline', 'woken', 'wake_data', 'wake_id',
}

local function given(field)
  return field and field ~= ''
end

local function timer_name(ns, id, wait)
  return 'wait ' .. ns .. ' ' .. id .. ' ' .. wait
end

local function drop_timer(delayed, bodies, ns, id, wait)
  if given(wait) then
    local name = timer_name(ns, id, wait)
    redis.call('ZREM', delayed, name)
    redis.call('HDEL', bodies, name)
  end
end

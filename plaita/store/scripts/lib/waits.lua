-- A wait in the row: `wait` is its id, `woken` says by what it was ended; all of these are '' when there is none.
-- The record of its timer in the delayed set is named after namespace, execution and wait.
local WAIT_FIELDS = {
  'wait', 'wait_type', 'wait_correlation', 'wait_filter', 'wait_since', 'wait_deadline', 'woken', 'wake_data', 'wake_id',
  'wait_config', 'wait_decisions', 'wait_stamps', 'wait_log', 'wait_group',
}

local function given(field)
  return field and field ~= ''
end

local function timer_name(ns, id, wait)
  return 'wait ' .. ns .. ' ' .. id .. ' ' .. wait
end

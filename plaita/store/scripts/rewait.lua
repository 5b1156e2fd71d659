-- Put waits back where their rows say that they stand: index, key sets, tasks (ledger D4, DECISIONS 28).
-- KEYS 1 delayed, 2 delayed bodies. ARGV 1 ns, 2 tombstone key of no id, 3 tenant, 4.. execution ids
-- ok: waits that were not whole, {id, wait, flow id, stamps} of those whose timer is missing
-- include: key_part
-- include: waits
-- include: subscriptions
local mended, timers = 0, {}

local function put_back(id, index, task, since)
  local _, new, more = nil, 0, 0
  local places, of_task = lines_of(index), lines_of(task)
  if #places >= 4 then
    table.remove(places, 1)
    _, new = subscribe(id, places)
  end
  if #of_task >= 3 then
    _, more = assign(id, of_task, given(since) and since or '0')
  end
  return new + more > 0
end

for i = 4, #ARGV do
  local id = ARGV[i]
  local row = redis.pcall('HMGET', ARGV[1] .. ':execution:' .. execution_part(id), 'wait', 'status', 'wait_index', 'wait_task',
    'wait_since', 'wait_deadline', 'woken', 'flow_id', 'wait_stamps')
  local waits = not row.err and row[2] == 'suspended' and given(row[1]) and not given(row[7])
  if waits and redis.call('HEXISTS', ARGV[2] .. key_part(id), ARGV[3]) == 0 then
    local changed = put_back(id, row[3], row[4], row[5])
    local name = timer_name(ARGV[1], id, row[1])
    local timed = redis.call('ZSCORE', KEYS[1], name) and redis.call('HEXISTS', KEYS[2], name) == 1
    if given(row[6]) and not timed then
      timers[#timers + 1] = {id, row[1], row[8] or '', row[9] or ''}
      changed = true
    end
    mended = mended + (changed and 1 or 0)
  end
end
return {'ok', mended, timers}

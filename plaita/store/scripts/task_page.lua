-- What a service has to do: a page of its tasks, the oldest first, or one by its id.
-- KEYS 1 tasks, 2 their executions. ARGV 1 ns, 2 task id or '', 3 first, 4 how many
-- ok: server time, how many tasks there are, {task id, execution id, wait, since, deadline or '', config, decisions, flow id,
--     node id, ...} of those that wait still
-- include: key_part
-- include: waits
-- include: time
local function fields_of(task)
  local id = redis.call('HGET', KEYS[2], task)
  if not id then
    return nil
  end
  local row = redis.pcall('HMGET', ARGV[1] .. ':execution:' .. execution_part(id), 'status', 'wait', 'woken', 'wait_task',
    'wait_since', 'wait_deadline', 'wait_config', 'wait_decisions', 'flow_id', 'next_node')
  local here = not row.err and row[1] == 'suspended' and not given(row[3]) and given(row[4])
  if not here or string.match(row[4], '[^\n]+$') ~= task then
    return nil
  end
  return {task, id, row[2], row[5] or '', row[6] or '', row[7] or '', row[8] or '', row[9] or '', row[10] or ''}
end

local found, tasks = {}, ARGV[2] ~= '' and {ARGV[2]} or redis.call('ZRANGE', KEYS[1], ARGV[3], ARGV[3] + ARGV[4] - 1)
for _, task in ipairs(tasks) do
  for _, field in ipairs(fields_of(task) or {}) do
    found[#found + 1] = field
  end
end
return {'ok', now_ms(), redis.call('ZCARD', KEYS[1]), found}

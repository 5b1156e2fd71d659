-- A page of what all tenants' executions wait for of a service that works for them on another server, the oldest first:
-- those that this host holds or now takes (DECISIONS 41).
-- KEYS 1 tasks of all tenants, 2 records of the waits that a host has begun to work for
-- ARGV 1 prefix, 2 type, 3 first, 4 how many, 5 prefix of locks, 6 holder, 7 ms of a lock, 8 how many more it can take
-- ok: how many tasks the page had, server time, {digests held before}, {of each taken now: digest, begun 0|1, tenant, task id,
--     execution id, wait, since, config, flow id, node id}
-- include: bridge
-- include: time
local page = redis.call('ZRANGE', KEYS[1], ARGV[3], ARGV[3] + ARGV[4] - 1)
local held, taken, room = {}, {}, tonumber(ARGV[8])
for _, member in ipairs(page) do
  local tenant, task = string.match(member, '^([^:]*):(.*)$')
  local ns = namespace(ARGV[1], tenant)
  local id = redis.call('HGET', ns .. ':service:' .. ARGV[2] .. ':of', task)
  local row = id and redis.pcall('HMGET', ns .. ':execution:' .. execution_part(id), 'status', 'wait', 'woken', 'wait_since',
    'wait_task', 'wait_config', 'flow_id', 'next_node') or {err = 'gone'}
  local here = not row.err and given(row[2]) and given(row[4]) and still_waits(row, row[2], row[4])
  if not here or string.match(row[5] or '', '[^\n]+$') ~= task then
    redis.call('ZREM', KEYS[1], member) -- of an execution that was taken away by hand
  else
    local digest = bridge_digest(ARGV[1], tenant, id, row[2], row[4])
    local key = ARGV[5] .. digest
    local mine = (room > 0 or redis.call('GET', key) == ARGV[6]) and hold(key, ARGV[6], ARGV[7])
    if mine == 0 then
      held[#held + 1] = digest
    elseif mine == 1 then
      room = room - 1
      for _, field in ipairs({digest, redis.call('HEXISTS', KEYS[2], digest), tenant, task, id, row[2], row[4], row[6] or '',
        row[7] or '', row[8] or ''}) do
        taken[#taken + 1] = field
      end
    end
  end
end
return {'ok', #page, now_ms(), held, taken}

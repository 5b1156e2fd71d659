-- A page of what all tenants' executions wait for of a service that works for them on another server, the oldest first:
-- those that this host holds or now takes (DECISIONS 41).
-- KEYS 1 tasks of all tenants, 2 records of the waits that a host has begun to work for
-- ARGV 1 prefix, 2 type, 3 last member of the page before or '', 4 its score, 5 how many, 6 prefix of locks, 7 holder,
--      8 ms of a lock, 9 how many more it can take, 10.. digests that it does not take now
-- ok: how many tasks the page had, the last one, its score, server time, {digests held before}, {of each taken now: digest,
--     begun 0|1, tenant, task id, execution id, wait, since, config, flow id, node id}
-- include: bridge
-- include: time
-- By its place now: whatever has ended since the last page, none is passed over.
local first = ARGV[3] ~= '' and redis.call('ZCOUNT', KEYS[1], '-inf', '(' .. ARGV[4]) or 0
local page, from
repeat
  page, from = redis.call('ZRANGE', KEYS[1], first, first + ARGV[5] - 1, 'WITHSCORES'), 1
  while page[from] and page[from + 1] == ARGV[4] and page[from] <= ARGV[3] do
    from = from + 2 -- as old as the last one, and on the last page
  end
  first = first + ARGV[5]
until from < #page or #page < 2 * ARGV[5]
local held, taken, room, left_alone = {}, {}, tonumber(ARGV[9]), {}
for i = 10, #ARGV do
  left_alone[ARGV[i]] = true
end
for at = from, #page, 2 do
  local member = page[at]
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
    local key = ARGV[6] .. digest
    local mine = not left_alone[digest] and (room > 0 or redis.call('GET', key) == ARGV[7]) and hold(key, ARGV[7], ARGV[8])
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
return {'ok', #page / 2, page[#page - 1] or '', page[#page] or '', now_ms(), held, taken}

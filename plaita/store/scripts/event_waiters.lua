-- A page of the executions whose waits an event ends. Members whose wait is over are taken out: a subscription that was
-- left behind (by a restored backup) must not stay for ever (ledger E2).
-- KEYS 1 a set of the index, 2 hash of key sets, 3 who uses the key set
-- ARGV 1 ns, 2 cursor, 3 about how many, 4 the key set, 5 log id of the event, 6 when it was, ms, or '' of one without a
--      correlation. ok: next cursor, {id, wait, flow id, stamps, ...}, taken out
-- include: key_part
-- include: log_order
-- include: subscriptions
-- include: waits
local page = redis.call('SSCAN', KEYS[1], ARGV[2], 'COUNT', ARGV[3])
local found, residual = {}, 0

-- Which of two waits gets an event must not hang on how fast the log is read. What stood in the log before the wait began
-- was for who waited then; a correlated one also for who came to wait, if the execution was there (DECISIONS 27).
local function was_for(wait_log, created)
  if not given(wait_log) or is_later(ARGV[5], wait_log) then
    return true
  end
  return ARGV[6] ~= '' and tonumber(ARGV[6]) >= (tonumber(created) or 0)
end

for _, id in ipairs(page[2]) do
  local row = redis.pcall('HMGET', ARGV[1] .. ':execution:' .. execution_part(id), 'status', 'wait', 'woken', 'wait_index',
    'flow_id', 'wait_stamps', 'wait_log', 'created_at')
  local waits = not row.err and row[1] == 'suspended' and not given(row[3])
  if waits and stands_in(row[4], KEYS[1]) then
    if was_for(row[7], row[8]) then
      local at = #found
      found[at + 1], found[at + 2], found[at + 3], found[at + 4] = id, row[2], row[5] or '', row[6] or ''
    end
  else
    redis.call('SREM', KEYS[1], id)
    if not (waits and stands_in(row[4], KEYS[3])) then
      redis.call('SREM', KEYS[3], id)
    end
    residual = residual + 1
  end
end
if residual > 0 and redis.call('EXISTS', KEYS[3]) == 0 then
  redis.call('HDEL', KEYS[2], ARGV[4])
end
return {'ok', page[1], found, residual}

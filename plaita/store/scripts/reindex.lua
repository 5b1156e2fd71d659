-- Put rows where their indexes should have them (ledger D4). KEYS 1 index, 2 expiry
-- ARGV 1 ns, 2 retention ms (0 for ever), 3 how much longer the row itself lives ms, 4 tombstone key of no id, 5 tenant,
--      6.. execution ids
-- ok: rows, indexed anew, moved between status indexes, given an end, {id, status, mark, flow} of those that should
--     move and that nobody runs, rows of deleted executions (a backup brought them back: they stand in no index, D2)
-- include: time
-- include: key_part
-- include: lease
-- include: waits
-- include: dies_with
-- include: statuses
local BASE, RETENTION, LONGER = ARGV[1] .. ':execution:', tonumber(ARGV[2]), tonumber(ARGV[3])
local rows, indexed, moved, ending, idle, deleted = 0, 0, 0, 0, {}, 0

local function out_of_all(id)
  redis.call('ZREM', KEYS[1], id)
  redis.call('ZREM', KEYS[2], id)
  for _, status in ipairs(STATUSES) do
    redis.call('ZREM', BASE .. 'index:' .. status, id)
  end
end

local function put_in_status(status, created, id)
  local changed = redis.call('ZADD', BASE .. 'index:' .. status, created, id)
  for _, other in ipairs(STATUSES) do
    if other ~= status then
      changed = changed + redis.call('ZREM', BASE .. 'index:' .. other, id)
    end
  end
  return changed > 0 and 1 or 0
end

-- What has ended gets an end of its row, what has not loses it. Returns 1 when that was wrong before.
local function set_end(key, id, status, ended)
  local known, left = redis.call('ZSCORE', KEYS[2], id), redis.call('PTTL', key)
  if not TERMINAL[status] then
    redis.call('ZREM', KEYS[2], id)
    redis.call('PERSIST', key)
    return (known or left >= 0) and 1 or 0
  end
  if RETENTION == 0 or (known and left >= 0) then
    return 0
  end
  local due = tonumber(known or '') or math.max(now_ms(), ended + RETENTION)
  redis.call('ZADD', KEYS[2], text(due), id)
  if left < 0 then
    redis.call('PEXPIRE', key, text(math.max(0, due - now_ms()) + LONGER))
  end
  return 1
end

for i = 6, #ARGV do
  local id = ARGV[i]
  local key = BASE .. execution_part(id)
  local row = redis.pcall('HMGET', key, 'status', 'created_at', 'ended_at', 'last_update_time', 'commit', 'attempts', 'woken',
    'flow_id')
  local status = row[1]
  local known = false
  for _, one in ipairs(STATUSES) do
    known = known or one == status
  end
  local tombstone = ARGV[4] .. key_part(id)
  if not row.err and known and redis.call('HEXISTS', tombstone, ARGV[5]) == 1 then
    out_of_all(id)
    dies_with(key, tombstone)
    deleted = deleted + 1
  elseif not row.err and known then
    rows = rows + 1
    local created = tonumber(row[2] or '') or now_ms()
    if not redis.call('ZSCORE', KEYS[1], id) then
      redis.call('ZADD', KEYS[1], text(created), id)
      indexed = indexed + 1
    end
    moved = moved + put_in_status(status, text(created), id)
    ending = ending + set_end(key, id, status, tonumber(row[3] or row[4] or '') or now_ms())
    local part = execution_part(id)
    local woken = given(row[7]) or redis.call('EXISTS', BASE .. 'cancel:' .. part) == 1
    local should_move = status == 'pending' or status == 'running' or (status == 'suspended' and woken)
    if should_move and redis.call('EXISTS', BASE .. 'lease:' .. part) == 0 then
      local mark = table.concat({status, row[4] or '', row[5] or '', row[6] or '', row[7] or ''}, '\n')
      idle[#idle + 1] = {id, status, mark, row[8] or ''}
    end
  end
end
return {'ok', rows, indexed, moved, ending, idle, deleted}

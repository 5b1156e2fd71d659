-- Delete entries that were acked and not deleted (ledger Q8): up to the last delivered id, and not pending.
-- KEYS 1 wake, 2 queue. ARGV 1 group, 2 entries to look at in each, 3 cursor of wake, 4 cursor of queue
-- ok: removed, cursors, done 0|1
-- include: group
local PAGE, MOST_BYTES = 16, 4 * 1024 * 1024
local GROUP, removed, done = ARGV[1], 0, 1

local function sweep(stream, cursor)
  local facts = group_facts(stream, GROUP)
  if not facts then
    return '-'
  end
  local looked, bytes = 0, 0
  while looked < tonumber(ARGV[2]) and bytes < MOST_BYTES do
    local found = redis.call('XRANGE', stream, cursor, facts['last-delivered-id'], 'COUNT', PAGE)
    for _, entry in ipairs(found) do
      cursor = '(' .. entry[1]
      looked = looked + 1
      for _, word in ipairs(entry[2]) do
        bytes = bytes + #word
      end
      if #redis.call('XPENDING', stream, GROUP, entry[1], entry[1], 1) == 0 then
        removed = removed + redis.call('XDEL', stream, entry[1])
      end
    end
    if #found < PAGE then
      return '-'
    end
  end
  done = 0
  return cursor
end

local wake, queue = sweep(KEYS[1], ARGV[3]), sweep(KEYS[2], ARGV[4])
return {'ok', removed, wake, queue, done}

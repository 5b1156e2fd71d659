-- include: key_part
-- include: retried
-- include: wait_end
-- include: statuses
-- Takes a row with all that belongs to it, but for fencegen and tombstone.

local OF_EXECUTION = {
  'lease', 'fence', 'cancel', 'noderetry', 'noderefetch', 'nofail', 'g1wakeups', 'affinityhandover',
}

local function remove_row(ns, id, status, retried, dedup_key)
  local base, part = ns .. ':execution:', execution_part(id)
  local names = {base .. part}
  for _, word in ipairs(OF_EXECUTION) do
    names[#names + 1] = base .. word .. ':' .. part
  end
  retried_keys(retried, base .. 'noderetry:' .. part, names)
  redis.call('DEL', unpack(names))
  if dedup_key then
    local claim = ns .. ':start-dedup:' .. key_part(dedup_key)
    if redis.call('GET', claim) == id then
      redis.call('DEL', claim)
    end
  end
  redis.call('ZREM', base .. 'index', id)
  redis.call('ZREM', base .. 'expiry', id)
  for _, known in ipairs(status and {status} or STATUSES) do
    redis.call('ZREM', base .. 'index:' .. known, id)
  end
end

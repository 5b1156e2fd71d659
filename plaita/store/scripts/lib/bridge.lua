-- include: key_part
-- include: waits
-- A wait for a queue is named by this digest, here and on the queue's server: no two waits have the same one, not even those
-- of an execution that was removed and started again under its id.
local function bridge_digest(prefix, tenant, id, wait, since)
  return redis.sha1hex(table.concat({prefix, tenant, id, wait, since}, '\n'))
end

local function still_waits(row, wait, since)
  return row[1] == 'suspended' and row[2] == wait and row[4] == since and not given(row[3])
end

-- One host at a time reads for a wait. Returns nil (another's), 0 (held already) or 1 (taken now).
local function hold(key, holder, ttl)
  local mine = redis.call('GET', key)
  if mine == holder then
    redis.call('PEXPIRE', key, ttl)
    return 0
  end
  if mine then
    return nil
  end
  redis.call('SET', key, holder, 'PX', ttl)
  return 1
end

-- include: key_part
-- What waits for a place under its tenant's quota (ledger T3): of each tenant a list of resumes (w) and one of starts (q);
-- a body is MessagePack of {execution id, field, value, ...}. The set `base` ('<queue>:parked') names the tenants.
local function parked_list(base, letter, tenant)
  return base .. ':' .. letter .. ':' .. key_part(tenant)
end

-- A hash of what is on its way to begin under the quota: '<q|w> <entry id>' -> execution id.
local function out_of(base, tenant)
  return base .. ':out:' .. key_part(tenant)
end

local function sent_out(out, letter, entry, id)
  redis.call('HSET', out, letter .. ' ' .. entry, id)
  redis.call('EXPIRE', out, 3600) -- when nothing is parked any more, nobody asks
end

-- How many have not begun: their entry is there still, and their row does not run. The rest is forgotten.
local function on_their_way(out, streams, rows)
  local count, known = 0, redis.call('HGETALL', out)
  for i = 1, #known, 2 do
    local letter, entry = string.match(known[i], '^([qw]) (.+)$')
    local there = #redis.call('XRANGE', streams[letter], entry, entry) > 0
    if there and redis.pcall('HGET', rows .. execution_part(known[i + 1]), 'status') ~= 'running' then
      count = count + 1
    else
      redis.call('HDEL', out, known[i])
    end
  end
  return count
end

-- `first`: before all that wait, for one that has waited before.
local function park(base, letter, tenant, id, fields, first)
  local body = {id}
  for i = 1, #fields do
    body[i + 1] = fields[i]
  end
  redis.call(first and 'LPUSH' or 'RPUSH', parked_list(base, letter, tenant), cmsgpack.pack(body))
  redis.call('SADD', base, tenant)
end

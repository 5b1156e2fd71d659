-- include: key_part
-- What waits for a place under its tenant's quota (ledger T3): of each tenant a list of resumes (w) and one of starts (q);
-- a body is MessagePack of {execution id, field, value, ...}. The set `base` ('<queue>:parked') names the tenants.
local function parked_list(base, letter, tenant)
  return base .. ':' .. letter .. ':' .. key_part(tenant)
end

local function park(base, letter, tenant, id, fields)
  local body = {id}
  for i = 1, #fields do
    body[i + 1] = fields[i]
  end
  redis.call('RPUSH', parked_list(base, letter, tenant), cmsgpack.pack(body))
  redis.call('SADD', base, tenant)
end

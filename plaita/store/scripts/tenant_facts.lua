-- What is known of tenants, as of one moment. A key of another kind counts as not there.
-- KEYS 1 tenant statuses, 2 their epoch, 3 tenant quotas, 4 parked tenants. ARGV 1 prefix, 2.. tenants; none: all that have
-- a status, a quota or something parked
-- ok: epoch or '', {tenant, status or '', quota or '', pending, running, suspended, parked} of each, by name
-- include: parked
local function members(command, key)
  local found = redis.pcall(command, key)
  return found.err and {} or found
end

local function text_at(key, field)
  local found = redis.pcall('HGET', key, field)
  return type(found) == 'string' and found or ''
end

local tenants = {}
for i = 2, #ARGV do
  tenants[i - 1] = ARGV[i]
end
if #tenants == 0 then
  local known = {}
  for _, found in ipairs({members('HKEYS', KEYS[1]), members('HKEYS', KEYS[3]), members('SMEMBERS', KEYS[4])}) do
    for _, tenant in ipairs(found) do
      if not known[tenant] then
        known[tenant] = true
        tenants[#tenants + 1] = tenant
      end
    end
  end
  table.sort(tenants)
end
local facts = {}
for i, tenant in ipairs(tenants) do
  local index = namespace(ARGV[1], tenant) .. ':execution:index:'
  local parked = 0
  for _, letter in ipairs({'q', 'w'}) do
    parked = parked + redis.call('LLEN', parked_list(KEYS[4], letter, tenant))
  end
  facts[i] = {
    tenant, text_at(KEYS[1], tenant), text_at(KEYS[3], tenant), redis.call('ZCARD', index .. 'pending'),
    redis.call('ZCARD', index .. 'running'), redis.call('ZCARD', index .. 'suspended'), parked,
  }
end
local epoch = redis.pcall('GET', KEYS[2])
return {'ok', type(epoch) == 'string' and epoch or '', facts}

-- What lies beside the streams: delayed deliveries, carriers over quota, due times of schedules; changes nothing.
-- KEYS 1 delayed, 2 parked tenants, 3 tenant statuses, 4 their epoch, 5 due times of schedules. ARGV 1 overdue from ms on, 2 tenants to look at
-- ok: delayed, overdue, ms since the first was due (less than 0: not yet; '' without one), {tenant, parked} of each, tenants
--     with a status, epoch or '', of schedules: due times, overdue, ms since the first was due as above
-- include: time
-- include: parked
local function number_of(command, ...)
  local found = redis.pcall(command, ...)
  return type(found) == 'number' and found or 0
end
local function times_of(key)
  local first = redis.pcall('ZRANGE', key, 0, 0, 'WITHSCORES')
  local due = not first.err and first[2] and text(now_ms() - tonumber(first[2])) or ''
  return number_of('ZCARD', key), number_of('ZCOUNT', key, '-inf', text(now_ms() - tonumber(ARGV[1]))), due
end
local tenants = redis.pcall('SSCAN', KEYS[2], 0, 'COUNT', ARGV[2])
local parked = {}
for i, tenant in ipairs(tenants.err and {} or tenants[2]) do
  if i > tonumber(ARGV[2]) then
    break
  end
  local count = 0
  for _, letter in ipairs({'q', 'w'}) do
    count = count + number_of('LLEN', parked_list(KEYS[2], letter, tenant))
  end
  if count > 0 then
    parked[#parked + 1] = {tenant, count}
  end
end
local epoch = redis.pcall('GET', KEYS[4])
local delayed, overdue, delayed_since = times_of(KEYS[1])
local scheduled, late, scheduled_since = times_of(KEYS[5])
return {
  'ok', delayed, overdue, delayed_since, parked, number_of('HLEN', KEYS[3]), type(epoch) == 'string' and epoch or '',
  scheduled, late, scheduled_since,
}

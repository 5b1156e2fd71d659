-- Bring parked carriers back into their streams, the first parked first and resumes before starts, as many as their tenant
-- has places for (ledger T3): its quota, less what runs, less what is on its way to begin.
-- KEYS 1 parked tenants, 2 queue, 3 wake, 4 tenant quotas, 5 tenant statuses, 6 epoch of the statuses, 7 dead letters
-- ARGV 1 prefix, 2 expected epoch or '', 3 how many of a tenant at most, 4 tenants at most, 5 dead letters at most,
--      6.. these tenants only
-- ok: moved, {tenants that still have some}, 1 where the next call may move more, bad, dead letters trimmed (-1 failed)
-- include: parked
-- include: record
-- include: tenant_gate
-- include: dead_letter
-- include: time
local BASE, MOST = KEYS[1], tonumber(ARGV[3])
local STREAMS = {q = KEYS[2], w = KEYS[3]}
local moved, left_of, more, bad, trimmed = 0, {}, 0, 0, 0

local function bring_back(tenant, out)
  for _, letter in ipairs({'w', 'q'}) do
    local list = parked_list(BASE, letter, tenant)
    local body = redis.call('LPOP', list)
    if body then
      local fields = record_of(body)
      if fields then
        local entry = redis.call('XADD', STREAMS[letter], '*', unpack(fields, 2))
        if out then
          sent_out(out, letter, entry, fields[1])
        end
        moved = moved + 1
        return
      end
      local _, lost = add_dead_letter(KEYS[7], ARGV[5], {
        'reason', 'parked_record_unreadable', 'source_stream', list, 'source_id', tenant, 'schema_version', '1',
        'dead_lettered_at', text(now_ms()), 'raw_body', body,
      })
      bad = bad + 1
      trimmed = (lost < 0 or trimmed < 0) and -1 or trimmed + lost
      return
    end
  end
end

local function release(tenant)
  local starts, resumes = parked_list(BASE, 'q', tenant), parked_list(BASE, 'w', tenant)
  local left = redis.call('LLEN', starts) + redis.call('LLEN', resumes)
  local out = out_of(BASE, tenant)
  if left == 0 then
    redis.call('SREM', BASE, tenant)
    return
  end
  local epoch = ARGV[2] ~= '' and redis.pcall('GET', KEYS[6])
  if not tenant_shut(tenant, redis.pcall('HGET', KEYS[5], tenant), epoch, ARGV[2]) then
    local quota, places = quota_of(redis.pcall('HGET', KEYS[4], tenant)), math.huge
    if quota then
      local rows = namespace(ARGV[1], tenant) .. ':execution:'
      places = quota - redis.call('ZCARD', rows .. 'index:running')
      if places > 0 then
        places = places - on_their_way(out, STREAMS, rows)
      end
    else
      redis.call('DEL', out)
    end
    for _ = 1, math.min(places, MOST, left) do
      bring_back(tenant, quota and out)
      left = left - 1
    end
    if left > 0 and places > MOST then
      more = 1
    end
  end
  if left > 0 then
    left_of[#left_of + 1] = tenant
  end
end

local tenants = {}
if #ARGV > 5 then
  for i = 6, #ARGV do
    tenants[#tenants + 1] = ARGV[i]
  end
elseif redis.call('EXISTS', BASE) == 1 then
  tenants = redis.call('SRANDMEMBER', BASE, ARGV[4])
end
for _, tenant in ipairs(tenants) do
  release(tenant)
end
return {'ok', moved, left_of, more, bad, trimmed}

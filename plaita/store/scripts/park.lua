-- Put a carrier aside that begin refused for its tenant's quota (ledger T3), judged again in the call: what has a place by
-- now is not parked, and neither is the carrier of one that runs, which would then have none that comes back.
-- KEYS 1 stream of the carrier, 2 row, 3 lease, 4 index of running, 5 tenant quotas, 6 parked tenants
-- ARGV 1 group, 2 consumer, 3 entry id, 4 q|w, 5 tenant, 6 execution id, 7.. fields that it gets where it has none of them
-- ok: parked 0|1 (0: the entry was gone). refused: changed: begin may take it now, or another host has it
-- include: carrier
-- include: parked
-- include: tenant_gate
local entry = redis.call('XRANGE', KEYS[1], ARGV[3], ARGV[3])[1]
if not entry then
  settle_carrier(KEYS[1], ARGV[1], ARGV[3]) -- pending without a body: nothing can be read of it any more
  return {'ok', 0}
end
local held = redis.pcall('XPENDING', KEYS[1], ARGV[1], ARGV[3], ARGV[3], 1)
if not held.err and held[1] and held[1][2] ~= ARGV[2] then
  return {'refused', 'changed', held[1][2]}
end
local quota = quota_of(redis.pcall('HGET', KEYS[5], ARGV[5]))
local status = redis.pcall('HGET', KEYS[2], 'status')
if not quota or redis.call('ZCARD', KEYS[4]) < quota or status == 'running' or redis.call('EXISTS', KEYS[3]) == 1 then
  return {'refused', 'changed', type(status) == 'string' and status or ''}
end
local fields, named = entry[2], {}
for i = 1, #fields, 2 do
  named[fields[i]] = true
end
for i = 7, #ARGV, 2 do
  if not named[ARGV[i]] then
    fields[#fields + 1], fields[#fields + 2] = ARGV[i], ARGV[i + 1]
  end
end
local waited = redis.call('HDEL', out_of(KEYS[6], ARGV[5]), ARGV[4] .. ' ' .. ARGV[3]) == 1
park(KEYS[6], ARGV[4], ARGV[5], ARGV[6], fields, waited)
settle_carrier(KEYS[1], ARGV[1], ARGV[3])
return {'ok', 1}

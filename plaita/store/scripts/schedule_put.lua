-- A schedule as it is from now on, put in place of the one that was read.
-- KEYS 1 schedules, 2 due set, 3 flow versions, 4 flow meta, 5 tenants that have schedules
-- ARGV 1 id, 2 member, 3 record, 4 record that was read or '', 5 due time that was read or '', 6 due time or '' for none,
--      7 version of the flow, '' where it is not looked at, 8 tenant
-- ok: whether it is new 0|1. refused: changed: read again; no_flow, no_version (latest)
-- include: resolve
local record, due = redis.call('HGET', KEYS[1], ARGV[1]) or '', redis.call('ZSCORE', KEYS[2], ARGV[2]) or ''
local before = ARGV[4] == '' and 1 or 0
if record == ARGV[3] and due == ARGV[6] then
  return {'ok', before} -- sent again
end
if record ~= ARGV[4] or due ~= ARGV[5] then
  return {'refused', 'changed'}
end
if ARGV[7] ~= '' then
  local version, refusal = resolve(KEYS[3], KEYS[4], ARGV[7])
  if not version then
    return refusal
  end
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
redis.call('SADD', KEYS[5], ARGV[8])
if ARGV[6] == '' then
  redis.call('ZREM', KEYS[2], ARGV[2])
else
  redis.call('ZADD', KEYS[2], ARGV[6], ARGV[2])
end
return {'ok', before}

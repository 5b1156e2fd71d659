-- Store a definition under a version (DECISIONS 14).
-- KEYS 1 body, 2 versions, 3 meta, 4 flow list. ARGV 1 flow, 2 version or '' (the next integer), 3 hash, 4 body, 5 force 0|1
-- ok: version, created 0|1. refused: version_exists (hash there)
-- include: time
-- include: version_order
local latest, version = redis.call('HGET', KEYS[3], 'latest'), ARGV[2]
if version == '' then
  if latest and redis.call('HGET', KEYS[2], latest) == ARGV[3] then
    return {'ok', latest, 0}
  end
  local highest = 0
  for _, known in ipairs(redis.call('HKEYS', KEYS[2])) do
    if string.match(known, '^%d+$') then
      highest = math.max(highest, tonumber(known))
    end
  end
  version = text(highest + 1)
end
local there = redis.call('HGET', KEYS[2], version)
if there == ARGV[3] then
  return {'ok', version, 0}
end
if there and ARGV[5] == '0' then
  return {'refused', 'version_exists', there}
end
redis.call('SET', KEYS[1], ARGV[4], 'NX')
redis.call('HSET', KEYS[2], version, ARGV[3])
redis.call('HSET', KEYS[3], 'at:' .. version, text(now_ms()), 'flow_id', ARGV[1])
if takes_over(version, latest) then
  redis.call('HSET', KEYS[3], 'latest', version)
end
redis.call('SADD', KEYS[4], ARGV[1])
return {'ok', version, 1}

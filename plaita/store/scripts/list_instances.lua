-- KEYS 1 instances. ARGV 1 prefix. ok: now ms, then {instance, incarnation or '', record or '', last heartbeat ms} for each
-- that is registered, or was until it died within a day; what left in order is forgotten
-- include: key_part
-- include: time
local function get(key)
  local found = redis.pcall('GET', key) -- something else may stand there
  return type(found) == 'string' and found or ''
end
local now = now_ms()
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', text(now - 86400000))
local answer = {'ok', text(now)}
local listed = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
for n = 1, #listed, 2 do
  local part = key_part(listed[n])
  local record = get(ARGV[1] .. ':registry:flow_worker:' .. part)
  local incarnation = get(ARGV[1] .. ':registry:incarnation:' .. part)
  if record == '' and incarnation == '' then
    redis.call('ZREM', KEYS[1], listed[n])
  else
    answer[#answer + 1] = {listed[n], incarnation, record, listed[n + 1]}
  end
end
return answer

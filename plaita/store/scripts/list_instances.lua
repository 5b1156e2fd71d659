-- KEYS 1 instances. ARGV 1 prefix. ok: {instance, incarnation, record} for each that is registered now
-- include: key_part
-- include: time
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', text(now_ms() - 86400000))
local answer = {'ok'}
for _, id in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  local part = key_part(id)
  local record = redis.call('GET', ARGV[1] .. ':registry:flow_worker:' .. part)
  if record then
    answer[#answer + 1] = {id, redis.call('GET', ARGV[1] .. ':registry:incarnation:' .. part) or '', record}
  end
end
return answer

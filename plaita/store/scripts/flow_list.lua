-- KEYS 1 flow list. ARGV 1 ns. ok: {flow, latest, number of versions} for each
-- include: key_part
local answer = {'ok'}
for _, flow in ipairs(redis.call('SMEMBERS', KEYS[1])) do
  local part = key_part(flow)
  answer[#answer + 1] = {
    flow, redis.call('HGET', ARGV[1] .. ':flow:meta:' .. part, 'latest') or '',
    redis.call('HLEN', ARGV[1] .. ':flow_versions:' .. part),
  }
end
return answer

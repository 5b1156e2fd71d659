-- KEYS 1 versions, 2 meta. ok: {version, hash, put at ms} for each. refused: no_flow
local flat = redis.call('HGETALL', KEYS[1])
if #flat == 0 then
  return {'refused', 'no_flow'}
end
local answer = {'ok'}
for i = 1, #flat, 2 do
  answer[#answer + 1] = {flat[i], flat[i + 1], redis.call('HGET', KEYS[2], 'at:' .. flat[i]) or '0'}
end
return answer

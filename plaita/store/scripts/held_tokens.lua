-- What Redis says of tokens that a supervisor holds (DECISIONS 11). Reads only.
-- KEYS for each token: fence, fencegen, lease. ARGV the execution ids, for their number
-- ok: for each {fence, fencegen, lease}, '' for what is not there
local answer = {'ok'}
for i = 1, #ARGV do
  local facts = redis.call('MGET', KEYS[i * 3 - 2], KEYS[i * 3 - 1], KEYS[i * 3])
  answer[i + 1] = {facts[1] or '', facts[2] or '', facts[3] or ''}
end
return answer

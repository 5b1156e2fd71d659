-- KEYS rows. ok: the status of each, '' where there is no row
local answer = {'ok'}
for i, key in ipairs(KEYS) do
  answer[i + 1] = redis.call('HGET', key, 'status') or ''
end
return answer

-- The statuses of tenants, and whom they are meant for. KEYS 1 tenant statuses, 2 their epoch. ARGV 1.. tenants
-- ok: epoch or '', status or '' of each; '' also for what cannot be read
local answer, epoch = {'ok', ''}, redis.pcall('GET', KEYS[2])
if type(epoch) == 'string' then
  answer[2] = epoch
end
for i, tenant in ipairs(ARGV) do
  local status = redis.pcall('HGET', KEYS[1], tenant)
  answer[i + 2] = type(status) == 'string' and status or ''
end
return answer

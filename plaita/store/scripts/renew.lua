-- Renew the leases that are still ours; their carriers' idle time goes back to zero (ledger L3, DECISIONS 3).
-- KEYS 1 queue, 2 wake, 3.. leases. ARGV 1 group, 2 consumer, 3 ttl ms, then for each lease: value, q|w, entry id
-- ok: 'ok' or 'lost' for each
local answer = {'ok'}
for i = 3, #KEYS do
  local at = 4 + (i - 3) * 3
  if redis.call('GET', KEYS[i]) == ARGV[at] then
    redis.call('PEXPIRE', KEYS[i], ARGV[3])
    -- a stream or group that was emptied meanwhile is no reason to lose the lease
    redis.pcall('XCLAIM', ARGV[at + 1] == 'q' and KEYS[1] or KEYS[2], ARGV[1], ARGV[2], 0, ARGV[at + 2], 'IDLE', 0, 'JUSTID')
    answer[#answer + 1] = 'ok'
  else
    answer[#answer + 1] = 'lost'
  end
end
return answer

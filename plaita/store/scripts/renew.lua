-- Renew the leases that are still ours; their carriers' idle time goes back to zero (ledger L3, DECISIONS 3). Where a
-- step runs, say so in the row: its open timing and the time, nothing else (ledger L4).
-- KEYS 1 queue, 2 wake, then for each lease: lease, row, fence, fencegen
-- ARGV 1 group, 2 consumer, 3 ttl ms, then for each lease: value, q|w, entry id, token, step or '', timing field, timing
-- ok: for each 'ok', 'lost' (another's lease, or none) or 'fenced' (the lease is ours, the fence is not)
-- include: time
local answer = {'ok'}
local now = text(now_ms())

-- The step must be the one after the row's last: what has advanced or ended meanwhile is not touched.
local function beat(row, at)
  local facts = redis.call('HMGET', row, 'status', 'step')
  if facts[1] == 'running' and (tonumber(facts[2]) or 0) + 1 == tonumber(ARGV[at + 4]) then
    redis.call('HSET', row, ARGV[at + 5], ARGV[at + 6], 'last_update_time', now)
  end
end

local function renew(key, at)
  local lease, row, fence, generation = KEYS[key], KEYS[key + 1], KEYS[key + 2], KEYS[key + 3]
  if redis.call('GET', lease) ~= ARGV[at] then
    return 'lost'
  end
  local token = ARGV[at + 3]
  if redis.call('GET', fence) ~= token or redis.call('GET', generation) ~= string.match(token, '^%d+') then
    return 'fenced'
  end
  redis.call('PEXPIRE', lease, ARGV[3])
  -- a stream or group that was emptied meanwhile is no reason to lose the lease
  redis.pcall('XCLAIM', ARGV[at + 1] == 'q' and KEYS[1] or KEYS[2], ARGV[1], ARGV[2], 0, ARGV[at + 2], 'IDLE', 0, 'JUSTID')
  if ARGV[at + 4] ~= '' then
    beat(row, at)
  end
  return 'ok'
end

for i = 0, (#KEYS - 2) / 4 - 1 do
  answer[#answer + 1] = renew(3 + i * 4, 4 + i * 7)
end
return answer

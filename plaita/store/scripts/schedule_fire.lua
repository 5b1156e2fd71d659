-- What is due of a schedule, or one run of it by hand, in one call: starts, next due time, history (ledger E5). The starts
-- come first: broken off, the due time stands and the dedup keys keep a second run away.
-- KEYS 1 schedules, 2 due set, 3 history, 4 flow versions, 5 flow meta, 6 index, 7 index of pending, 8 queue,
--      9 tenant statuses, 10 tenant quotas, 11 parked tenants, 12 wake,
--      13 tenants that have schedules, 14.. of each start: row, tombstone, dedup key
-- ARGV 1 schedule id, 2 member, 3 record as it was read, 4 due time as it was read or '' by hand, 5 next due time or '',
--      6 tenant, 7 flow, 8 version, 9 input, 10 dedup ttl ms, 11 ns, 12 entries of history at most, 13 what was skipped as
--      the rest of a history entry, or '', 14 how many words of carrier fields, 15.. these,
--      then of each start: execution id, nonce, dedup key, payload, head of its history entry
-- ok: now, of each start: ok|duplicate|failed, reason, execution id, version, message id
-- refused: gone, changed: read again
-- include: start
-- include: slice
local record = redis.pcall('HGET', KEYS[1], ARGV[1])
if type(record) ~= 'string' then
  redis.pcall('ZREM', KEYS[2], ARGV[2])
  return {'refused', 'gone'}
end
if record ~= ARGV[3] or (ARGV[4] ~= '' and redis.call('ZSCORE', KEYS[2], ARGV[2]) ~= ARGV[4]) then
  return {'refused', 'changed'}
end

local words = slice(ARGV, 15, 14 + tonumber(ARGV[14]))
local answer, entries, now = {}, {}, text(now_ms())
if ARGV[13] ~= '' then
  entries[1] = '{"fired_at":' .. now .. ',' .. ARGV[13] .. '}'
end

-- Ids and reasons have no character that JSON would want escaped; of an error's text such ones are left out.
local function told(head, outcome, reason, id, version, message)
  reason = string.gsub(reason, '[%c"\\\128-\255]', ' ')
  for _, word in ipairs({outcome, reason, id, version, message}) do
    answer[#answer + 1] = word
  end
  entries[#entries + 1] = '{"fired_at":' .. now .. ',' .. head .. ',"enqueue":"' .. outcome .. '","reason":"' .. reason
    .. '","execution_id":"' .. id .. '","version":"' .. version .. '","msg_id":"' .. message .. '"}'
end

local at, place = 15 + #words, 14
while at <= #ARGV do
  local id, nonce, payload, head = ARGV[at], ARGV[at + 1], ARGV[at + 3], ARGV[at + 4]
  local keys = {
    KEYS[place], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[place + 1], KEYS[8], KEYS[place + 2], KEYS[9], KEYS[10], KEYS[11],
    KEYS[12],
  }
  local args = {id, ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[at + 2], ARGV[10], nonce, ARGV[11], 'payload', payload,
    'execution_id', id}
  for _, word in ipairs(words) do
    args[#args + 1] = word
  end
  local before = redis.call('EXISTS', keys[1]) == 1
  local fine, found = pcall(start_execution, keys, args)
  if not fine then
    told(head, 'failed', type(found) == 'table' and found.err or tostring(found), '', '', '')
  elseif found[1] == 'refused' then
    told(head, 'failed', found[2], '', '', '')
  elseif before and found[2] == id then -- this call was sent before
    for _, word in ipairs({'ok', '', id, found[3], found[5]}) do
      answer[#answer + 1] = word
    end
  else
    told(head, found[6] == 1 and 'duplicate' or 'ok', '', found[2], found[3], found[5])
  end
  at, place = at + 5, place + 3
end

if ARGV[4] ~= '' then
  redis.pcall('SADD', KEYS[13], ARGV[6])
  if ARGV[5] == '' then
    redis.call('ZREM', KEYS[2], ARGV[2])
  else
    redis.call('ZADD', KEYS[2], ARGV[5], ARGV[2])
  end
end
if #entries > 0 then
  redis.pcall('LPUSH', KEYS[3], unpack(entries))
  redis.pcall('LTRIM', KEYS[3], 0, tonumber(ARGV[12]) - 1)
end
return {'ok', now, answer}

-- Ask for a continue or a retry (ledger S3, S4, S5, S13). Changes no state but for its own mark, by which the same call
-- sent again is known: begin judges anew and wakes.
-- KEYS 1 row, 2 lease, 3 cancel, 4 tombstone, 5 wake stream, 6 g1wakeups, 7 nofail
-- ARGV 1 tenant, 2 continue|retry, 3 ns of the flows, 4 nonce, 5 unblock 0|1: the counters of S13 start anew, 6.. carrier fields
-- ok: status, enqueued 0|1, reason it was not, detail (the lease; the key of a counter; the hash)
-- refused: tombstoned (when, why), no_row, wrong_type
-- include: lease
-- include: waits
-- include: wake_counters
local row = redis.pcall('HMGET', KEYS[1], 'status', 'flow_hash', 'woken', 'resumed_by')
if row.err then
  return {'refused', 'wrong_type', redis.call('TYPE', KEYS[1]).ok}
end
local tombstone = redis.call('HGET', KEYS[4], ARGV[1])
if tombstone then
  return {'refused', 'tombstoned', tombstone}
end
local status = row[1]
if not status then
  return {'refused', 'no_row'}
end
if row[4] == ARGV[4] then
  return {'ok', status, 1, '', ''} -- sent again: a second carrier would be a second wake-up, if the first has failed by now
end
local function no(reason, detail)
  return {'ok', status, 0, reason, detail or ''}
end
if TERMINAL[status] then
  if status ~= 'error' or ARGV[2] ~= 'retry' then
    return no('already_terminal')
  end
  if ARGV[5] == '1' then
    redis.call('DEL', KEYS[6], KEYS[7])
  end
  local what, key = exhausted(KEYS[6], KEYS[7])
  if what then
    return no(what, key)
  end
  if given(row[2]) and redis.call('EXISTS', ARGV[3] .. ':flow:body:' .. row[2]) == 0 then
    return no('definition_gone', row[2])
  end
end
local lease = redis.call('GET', KEYS[2])
if lease then
  return no('held', lease)
end
-- A wait that was ended has its carrier; one more does no harm, and helps where that was lost.
if status == 'suspended' and not given(row[3]) and redis.call('EXISTS', KEYS[3]) == 0 then
  return no('already_suspended')
end
redis.call('XADD', KEYS[5], '*', unpack(ARGV, 6)) -- first: should the stream not take it, nothing is marked as done
redis.call('HSET', KEYS[1], 'resumed_by', ARGV[4])
return {'ok', status, 1, '', ''}

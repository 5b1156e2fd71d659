-- The end of an execution: row, indexes, expiry, lease, counters, dead letter and ack in one call (ledger F3).
-- KEYS 1 row, 2 fence, 3 fencegen, 4 lease, 5 cancel, 6 nofail, 7 noderetry, 8 noderefetch, 9 g1wakeups,
--      10 index of running, 11 stream of the carrier, 12 index of the new status, 13 expiry, 14 dead letters
-- ARGV 1 token, 2 step, 3 active ms delta, 4 entry id, 5 group, 6 execution id, 7 retention ms, 8 ttl of the row ms (0 none),
--      9 dead letters at most, 10 deterministic failure 0|1, 11 ttl of its counter ms, 12 number n of dead letter words,
--      13..12+n those, then the row's fields
-- ok: done before 0|1, cancel (its reason or nil), dead letter id, dead letters trimmed. refused: see lib/settle
-- include: settle
-- include: retried
-- include: carrier
-- include: slice
-- include: dead_letter
local refusal, row, flags, done = check('finish')
if refusal then
  return refusal
end
local cancel = flags[4]
if done then
  return {'ok', 1, cancel, '', 0}
end
local now = now_ms()
local words, last = tonumber(ARGV[12]), #ARGV
local dlq_id, trimmed = '', 0
if words > 0 then
  dlq_id, trimmed = add_dead_letter(KEYS[14], ARGV[9], slice(ARGV, 13, 12 + words))
end

redis.call('ZREM', KEYS[10], ARGV[6])
redis.call('ZADD', KEYS[12], row[7] or text(now), ARGV[6])
local kept = {KEYS[1], KEYS[2], KEYS[3]}
local gone = {KEYS[4], KEYS[5], KEYS[7]}
local failed = KEYS[12]:match(':error$')
if failed then
  if ARGV[10] == '1' then
    redis.call('INCR', KEYS[6])
    redis.call('PEXPIRE', KEYS[6], ARGV[11])
  end
  -- a later `retry` of this row asks both (ledger S13); its retries count on in noderefetch (S12), which has its own end
  kept[4], kept[5] = KEYS[6], KEYS[9]
else
  gone[4], gone[5], gone[6] = KEYS[6], KEYS[8], KEYS[9]
end
retried_keys(row[5], KEYS[7], gone)
redis.call('DEL', unpack(gone))

ARGV[last + 1], ARGV[last + 2] = 'active_ms', active_ms(row, ARGV[3])
ARGV[last + 3], ARGV[last + 4] = 'last_update_time', text(now)
ARGV[last + 5], ARGV[last + 6] = 'ended_at', text(now)
-- What woke a node that failed stays for a `retry`, which resumes it with the same; a wait that nothing ended does not.
if given(row[8]) and not (failed and given(redis.call('HGET', KEYS[1], 'woken'))) then
  blank_wait(row)
end
write_row(13 + words)
local spent = {'retried'}
if not KEYS[12]:match(':cancelled$') then
  spent[2] = 'cancel_signalled_at' -- it came too late, and is none of a later retry's
end
redis.call('HDEL', KEYS[1], unpack(spent))
if tonumber(ARGV[8]) > 0 then
  redis.call('ZADD', KEYS[13], text(now + ARGV[7]), ARGV[6])
  for _, key in ipairs(kept) do
    redis.call('PEXPIRE', key, ARGV[8])
  end
end
settle_carrier(KEYS[11], ARGV[5], ARGV[4])
return {'ok', 0, cancel, dlq_id, trimmed}

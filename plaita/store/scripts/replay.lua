-- One dead letter's carrier into the queue again, or why not: mark, carrier and audit in one call (ledger D5).
-- KEYS 1 dead letters, 2 mark, 3 audit, then, where the letter names what can be run: 4 queue, 5 wake stream, 6 row,
--      7 lease, 8 cancel, 9 tombstone, 10 g1wakeups, 11 nofail, 12 flow versions, 13 flow meta
-- ARGV 1 dlq id, 2 nonce, 3 force 0|1, 4 dry run 0|1, 5 outcome if it is known already, or '', 6 its detail, 7 ttl of the
--      mark ms, 8 audit entries at most, 9 a repetition is audited 0|1, 10 tenant, 11 kind (start or resume type),
--      12 foreign start 0|1, 13 flow or '', 14 version, 15 wait or '', 16 ns, 17 number n of audit words, 18..17+n those,
--      then number m of carrier words, those, then the words of the retry that takes their place
-- ok: outcome, detail, message id or '', status of the execution or '', enqueued as
-- include: lease
-- include: time
-- include: slice
-- include: resolve
-- include: waits
-- include: wake_counters
local KIND, WAIT = ARGV[11], ARGV[15]
local audit_words = tonumber(ARGV[17])
local carrier_from = 19 + audit_words
local carrier_words = tonumber(ARGV[carrier_from - 1] or '0')

local function told(outcome, detail, status, message, as)
  if ARGV[4] == '0' and (outcome ~= 'already_replayed' or ARGV[9] == '1') then
    local words = slice(ARGV, 18, 17 + audit_words)
    for _, word in ipairs({
      'dlq_id', ARGV[1], 'outcome', outcome, 'detail', detail or '', 'status', status or '', 'message_id', message or '',
      'forced', ARGV[3],
    }) do
      words[#words + 1] = word
    end
    redis.call('XADD', KEYS[3], 'MAXLEN', '~', ARGV[8], '*', unpack(words))
  end
  return {'ok', outcome, detail or '', message or '', status or '', as or ''}
end

if #redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1]) == 0 then
  return told('no_letter')
end
local mark = redis.call('GET', KEYS[2])
if mark then
  local at, nonce, message, as = string.match(mark, '^(%d+) (%S+) (%S+) (%S+)$')
  if nonce == ARGV[2] then
    return {'ok', 'replayed', '', message, '', as} -- sent again
  end
  if ARGV[3] == '0' then
    return told('already_replayed', at)
  end
end
if ARGV[5] ~= '' then
  return told(ARGV[5], ARGV[6])
end

local tombstone = redis.call('HGET', KEYS[9], ARGV[10])
if tombstone then
  return told('execution_deleted', tombstone)
end
local row = redis.pcall('HMGET', KEYS[6], 'status', 'flow_id', 'flow_hash', 'wait', 'woken')
if row.err then
  return told('wrong_type', redis.call('TYPE', KEYS[6]).ok)
end

local status, as = row[1], KIND
local resumes = KIND == 'event' or KIND == 'timeout'

-- Without a row only a start that carries its own input can run. Returns why not, detail.
local function without_row()
  if ARGV[12] == '0' then
    return 'no_row'
  end
  local version, refusal = resolve(KEYS[12], KEYS[13], ARGV[14])
  if not version then
    return refusal[2], refusal[3]
  end
end

-- What has ended is woken from error by a retry, and by nothing else. Returns why not, detail.
local function of_terminal()
  if status ~= 'error' or KIND == 'cancel' then
    return 'already_terminal', status
  end
  as = 'retry'
  return exhausted(KEYS[10], KEYS[11])
end

local function of_suspended()
  if KIND == 'cancel' or redis.call('EXISTS', KEYS[8]) == 1 then
    return nil
  end
  if not resumes then
    if not given(row[5]) then
      return 'already_suspended'
    end
  elseif WAIT ~= '' and WAIT ~= (row[4] or '') then
    return 'stale_wait', row[4] or ''
  elseif given(row[5]) then
    return 'already_woken', row[5]
  end
end

local function with_row()
  if KIND == 'start' and row[2] and row[2] ~= ARGV[13] then
    return 'id_taken', row[2]
  end
  local what, detail
  if TERMINAL[status] then
    what, detail = of_terminal()
  elseif status == 'suspended' then
    what, detail = of_suspended()
  elseif status == 'pending' and resumes then
    what = 'not_waiting'
  elseif not resumes and KIND ~= 'cancel' and redis.call('EXISTS', KEYS[7]) == 1 then
    what, detail = 'held', redis.call('GET', KEYS[7])
  end
  if not what and KIND ~= 'cancel' and given(row[3]) and redis.call('EXISTS', ARGV[16] .. ':flow:body:' .. row[3]) == 0 then
    what, detail = 'definition_gone', row[3]
  end
  return what, detail
end

local what, detail
if status then
  what, detail = with_row()
else
  what, detail = without_row()
end
if what then
  return told(what, detail, status)
end
if ARGV[4] == '1' then
  return told('replayed', '', status, '', as)
end
local words
if as == KIND then
  words = slice(ARGV, carrier_from, carrier_from + carrier_words - 1)
else
  words = slice(ARGV, carrier_from + carrier_words, #ARGV)
end
local message = redis.call('XADD', as == 'start' and KEYS[4] or KEYS[5], '*', unpack(words))
redis.call('SET', KEYS[2], text(now_ms()) .. ' ' .. ARGV[2] .. ' ' .. message .. ' ' .. as, 'PX', ARGV[7])
return told('replayed', '', status, message, as)

-- Take the lease of an execution for one carrier, and judge by the row what this carrier may do (ledger L1, L2, S3-S7, S14).
-- KEYS 1 row, 2 lease, 3 fence, 4 fencegen, 5 cancel, 6 index, 7 tombstone, 8 delayed, 9 delayed bodies, 10 stream of
--      the carrier, 11 tenant statuses, 12 their epoch, 13 tenant quotas, and of a foreign start: 14 flow versions,
--      15 flow meta, 16 dedup claim (where ARGV 17 is not '')
-- ARGV 1 id, 2 holder, 3 nonce, 4 ttl ms, 5 q|w, 6 entry id, 7 max lost, 8 tenant, 9 foreign 0|1, 10 flow, 11 version,
--      12 input, 13 kind, 14 data or '', 15 event id or '', 16 wait or '', 17 dedup key or '', 18 dedup ttl ms,
--      19 counter ttl ms, 20 ns, 21 server time after which a foreign start is too old to make a row, ms, or '',
--      22 expected epoch of the tenant statuses, or '' where none is
-- ok: see lib/begun; how: 'normalised', 'retried' or ''
-- refused: tombstoned, no_row, wrong_type, flow_conflict (owner's flow), terminal (status), g1_wakeups_exhausted (key),
--     deterministic_failure_exhausted (key), leased (lease value), tenant_epoch (missing|older|newer), tenant_disabled,
--     quota (running/quota), suspended, stale_wait (the wait there), no_checkpoint,
--     dedup_hit (status, id), too_old (server time), no_flow, no_version
-- include: begun
-- include: resolve
-- include: retried
-- include: wait_end
-- include: wake_counters
-- include: key_part
-- include: tombstones
-- include: dies_with
-- include: tenant_gate
local KIND, BASE = ARGV[13], ARGV[20] .. ':execution:'
local row = redis.pcall('HMGET', KEYS[1], 'status', 'flow_id', 'next_node', 'lost', 'lost_node', 'attempts', 'created_at',
  'started_at', 'wait', 'woken', 'begun', 'used_events')
if row.err then
  return {'refused', 'wrong_type', redis.call('TYPE', KEYS[1]).ok}
end
local status, woken = row[1], given(row[10])
local resumes = KIND == 'event' or KIND == 'timeout'

local tombstone = redis.call('HGET', KEYS[7], ARGV[8])
if tombstone then
  if ARGV[17] ~= '' and redis.call('GET', KEYS[16]) == ARGV[1] then
    redis.call('DEL', KEYS[16])
  end
  if status then
    dies_with(KEYS[1], KEYS[7])
  end
  return {'refused', 'tombstoned', tombstone}
end
if status and ARGV[9] == '1' and row[2] ~= ARGV[10] then
  return {'refused', 'flow_conflict', row[2] or ''}
end
if not status and ARGV[9] == '0' then
  return {'refused', 'no_row'}
end

-- What is over or waits has no other carrier than the one that now makes it run: that must be there. Who held it for
-- long may come after it was done with.
local function there()
  return #redis.call('XRANGE', KEYS[10], ARGV[6], ARGV[6]) > 0
end

local retries = status == 'error' and KIND == 'retry' and there()
local of_this = string.sub(KEYS[1], #BASE + 1)
local wakeups = BASE .. 'g1wakeups:' .. of_this
if status and TERMINAL[status] then
  if not retries then
    return {'refused', 'terminal', status}
  end
  local what, key = exhausted(wakeups, BASE .. 'nofail:' .. of_this)
  if what then
    return {'refused', what, key}
  end
end
local lease = redis.call('GET', KEYS[2])
local before = held_before(lease)
if before and status == 'running' then
  local token, how = string.match(row[11] or '', '^(%S+) (%S+)$')
  return begun(before, lease, token == before and how or '')
end
if lease and not before then -- ours over a row that does not run (it came back from a backup) is begun anew
  return {'refused', 'leased', lease}
end

-- What its tenant may not do now; returns a refusal or nil (ledger T2, T3). An end that was asked for needs no place, and
-- runs nothing unless a node has a wait to undo.
local function tenant_refuses()
  local epoch = ARGV[22] ~= '' and redis.pcall('GET', KEYS[12])
  local what, detail = tenant_shut(ARGV[8], redis.pcall('HGET', KEYS[11], ARGV[8]), epoch, ARGV[22])
  if not what and status ~= 'running' then
    local quota = quota_of(redis.pcall('HGET', KEYS[13], ARGV[8]))
    local running = quota and redis.call('ZCARD', KEYS[6] .. ':running')
    if quota and running >= quota then
      what, detail = 'quota', running .. '/' .. text(quota)
    end
  end
  if not what then
    return nil
  end
  local ends = status and what ~= 'tenant_epoch' and (KIND == 'cancel' or redis.call('EXISTS', KEYS[5]) == 1)
  if ends and (what == 'quota' or woken or not given(row[9])) then
    return nil
  end
  return {'refused', what, detail}
end

local shut = tenant_refuses()
if shut then
  return shut
end

local changes = {}
local function set(name, value)
  changes[#changes + 1] = name
  changes[#changes + 1] = value
end
local now = text(now_ms())

-- What a suspended row allows; returns a refusal or nil.
local function leave_wait()
  if not woken and redis.call('EXISTS', KEYS[5]) == 0 then
    if not (resumes or KIND == 'cancel') or not there() then
      return {'refused', 'suspended'}
    end
    if resumes and ARGV[16] ~= '' and ARGV[16] ~= (row[9] or '') then
      return {'refused', 'stale_wait', row[9] or ''}
    end
    if resumes and ARGV[15] ~= '' and event_is_used(row[12], ARGV[15]) then
      return {'refused', 'stale_wait', row[9] or ''} -- it ended an earlier wait of this execution
    end
    if resumes then
      set('woken', KIND)
      set('wake_data', ARGV[14] ~= '' and ARGV[14] or 'null')
      set('wake_id', ARGV[15])
      if ARGV[15] ~= '' then
        set('used_events', with_used_event(row[12], ARGV[15], redis.call('HGET', KEYS[1], 'wait_group')))
      end
    end
  end
  end_wait(KEYS[1], KEYS[8], KEYS[9], ARGV[20], ARGV[1], row[9])
  return nil
end

-- What a row in error takes back (ledger S3): it goes on from its checkpoint, with fresh budgets of its nodes.
local function leave_error()
  redis.call('INCR', wakeups)
  redis.call('PEXPIRE', wakeups, ARGV[19])
  local noderetry = BASE .. 'noderetry:' .. of_this
  local gone = {noderetry}
  retried_keys(redis.call('HGET', KEYS[1], 'retried'), noderetry, gone)
  redis.call('DEL', unpack(gone))
  redis.call('HDEL', KEYS[1], 'error', 'ended_at', 'last_error', 'failure', 'output', 'retried')
  redis.call('ZREM', BASE .. 'expiry', ARGV[1])
  for _, key in ipairs({KEYS[1], KEYS[3], KEYS[4]}) do
    redis.call('PERSIST', key)
  end
  row[4] = '0'
end

-- A row for a start that came without one. Returns a refusal or nil.
local function new_row()
  -- Judged here again, by the clock that ends tombstones: else one could end between the judgement and this call, or
  -- under a host whose clock is slow (ledger D2, D3).
  if ARGV[21] ~= '' and now_ms() > tonumber(ARGV[21]) then
    return {'refused', 'too_old', now}
  end
  if ARGV[17] ~= '' then
    local other = redis.call('GET', KEYS[16])
    local found = other and other ~= ARGV[1] and redis.call('HGET', BASE .. execution_part(other), 'status')
    if found and not tombstone_of(KEYS[7], ARGV[1], other, ARGV[8]) then
      return {'refused', 'dedup_hit', found .. ' ' .. other}
    end
  end
  local version, hash = resolve(KEYS[14], KEYS[15], ARGV[11])
  if not version then
    return hash
  end
  set('flow_id', ARGV[10])
  set('version', version)
  set('flow_hash', hash)
  set('tenant_id', ARGV[8])
  set('input', ARGV[12])
  set('created_at', now)
  set('first_enqueued_at', now)
  if ARGV[17] ~= '' then
    redis.call('SET', KEYS[16], ARGV[1], 'PX', ARGV[18])
    set('dedup_key', ARGV[17])
  end
  return nil
end

local refusal, how = nil, ''
if not status then
  refusal = new_row()
elseif status == 'suspended' then
  refusal = leave_wait()
elseif status == 'pending' and resumes then
  refusal = {'refused', 'no_checkpoint'}
elseif status == 'running' and resumes and not woken then
  how = 'normalised'
elseif retries then
  how = 'retried'
  leave_error()
end
if refusal then
  return refusal
end

local next_node = row[3] or ''
set('status', 'running')
set('last_update_time', now)
if not row[8] then
  set('started_at', now)
end
set('attempts', text((tonumber(row[6]) or 0) + 1))
local lost = handed_out(row[4], row[5], next_node)
set('lost', text(lost))
set('lost_node', next_node)
if lost <= tonumber(ARGV[7]) then -- who was given the step to run: one that may only end it does not hide who lost it
  set('last_holder', ARGV[2])
end
if status ~= 'running' then
  local created = row[7] or now
  redis.call('ZADD', KEYS[6], created, ARGV[1])
  redis.call('ZREM', KEYS[6] .. ':' .. (status or 'pending'), ARGV[1])
  redis.call('ZADD', KEYS[6] .. ':running', created, ARGV[1])
end
local token
token, lease = acquire()
if how ~= '' then
  set('begun', token .. ' ' .. how) -- for the answer to the same call sent again
end
redis.call('HSET', KEYS[1], unpack(changes))
return begun(token, lease, how)

-- include: lease
-- include: time
-- include: waits
-- The checks that commit, finish and postpone share; the order is part of the promise (DECISIONS 2).
-- KEYS 1 row, 2 fence, 3 fencegen, 4 lease, 5 cancel, 6 nofail. ARGV 1 token, 2 step.
-- `lease`: the whole value where the caller knows it, which spares taking it apart.
-- Returns a refusal, or nil, the row's fields {status, commit, step, active_ms, retried, lost, created_at, wait},
-- the flags {fence, fencegen, lease, cancel, nofail} and whether this very (token, step, verb) was done before.
local function check(verb, lease)
  local row = redis.call('HMGET', KEYS[1], 'status', 'commit', 'step', 'active_ms', 'retried', 'lost', 'created_at',
    'wait')
  if not row[1] then
    return {'refused', 'no_row'}
  end
  local flags = redis.call('MGET', KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6])
  local token, mark = ARGV[1], ARGV[1] .. '|' .. ARGV[2] .. '|'
  if row[2] and string.sub(row[2], 1, #mark) == mark then
    if row[2] == mark .. verb then
      return nil, row, flags, true
    end
    return {'refused', 'fence', 'settled before as ' .. row[2]}
  end
  if TERMINAL[row[1]] then
    return {'refused', 'terminal', row[1]}
  end
  if row[1] ~= 'running' then
    return {'refused', 'not_running', row[1]} -- a row that came back from a backup under a live lease: begun anew
  end
  if flags[1] ~= token or flags[2] ~= string.match(token, '^%d+') then
    return {'refused', 'fence', flags[1] or ''}
  end
  if (tonumber(row[3]) or 0) + 1 ~= tonumber(ARGV[2]) then
    return {'refused', 'stale_step', row[3] or '0'}
  end
  if flags[3] and flags[3] ~= lease and not lease_is(flags[3], token) then
    return {'refused', 'lease_lost', flags[3]}
  end
  return nil, row, flags, false
end

local function active_ms(row, delta)
  return text((tonumber(row[4]) or 0) + tonumber(delta))
end

-- A step that ends a wait clears it: the fields come after those that the caller gave.
local function blank_wait(row)
  if given(row[8]) then
    for _, name in ipairs(WAIT_FIELDS) do
      ARGV[#ARGV + 1] = name
      ARGV[#ARGV + 1] = ''
    end
  end
end

-- Writes the fields from ARGV[from] on to the row; in pieces when there are more than Lua can unpack (about 8000).
local function write_row(from)
  if #ARGV - from < 4000 then
    redis.call('HSET', KEYS[1], unpack(ARGV, from))
    return
  end
  for at = from, #ARGV, 1000 do
    redis.call('HSET', KEYS[1], unpack(ARGV, at, math.min(at + 999, #ARGV)))
  end
end

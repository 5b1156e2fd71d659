-- Reclaim a page of what is pending, then read what is new; `count` entries in all (ledger Q2, DECISIONS 4).
-- KEYS 1 wake, 2 queue
-- ARGV 1 group, 2 consumer, 3 count, 4 min idle ms, 5 holder, 6 adopt 0|1, 7 page, 8 cursor of wake, 9 cursor of queue,
--      10 prefix, 11 config family or '', 12 budget generation or '', 13 how many new starts go before new wake-ups,
--      14 last names of repositories that this host denies, a line each, 15.. entries in hand ('q 1-0')
-- ok: entries {q|w, id, delivered, reclaimed 0|1, fields}, cursors, ghosts, more pending 0|1, skipped: leased, of another family, of another budget
-- include: key_part
-- include: lease
-- include: generations
-- include: repo
local GROUP, CONSUMER, HOLDER, PREFIX, FAMILY, BUDGET = ARGV[1], ARGV[2], ARGV[5], ARGV[10], ARGV[11], ARGV[12]
local ADOPT, PAGE = ARGV[6] == '1', tonumber(ARGV[7])
local INSTANCE = string.match(HOLDER, '^(.*)/')
local room = tonumber(ARGV[3])
local in_hand, entries, ghosts, leased, more, other_family, other_budget = {}, {}, 0, 0, 0, 0, 0
for i = 15, #ARGV do
  in_hand[ARGV[i]] = true
end
local denied = denies(ARGV[14])

local function pending(stream, from)
  local words = {'XPENDING', stream, GROUP}
  if not ADOPT then
    words[4], words[5] = 'IDLE', ARGV[4]
  end
  words[#words + 1] = from
  words[#words + 1] = '+'
  words[#words + 1] = PAGE
  if ADOPT then
    words[#words + 1] = CONSUMER
  end
  local reply = redis.pcall(unpack(words))
  if not reply.err then
    return reply
  end
  if string.find(reply.err, 'NOGROUP', 1, true) then
    -- emptied or new: from id 0, so that what was added before we noticed is delivered too
    redis.call('XGROUP', 'CREATE', stream, GROUP, '0', 'MKSTREAM')
    return {}
  end
  return redis.call(unpack(words))
end

local function is_leased(tenant, id)
  if not id or id == '' then
    return false
  end
  local key = namespace(PREFIX, tenant) .. ':execution:lease:' .. execution_part(id)
  local value = redis.call('GET', key)
  if value and ADOPT then
    local holder = lease_words(value)
    if holder and holder ~= HOLDER and string.match(holder, '^(.*)/') == INSTANCE then
      redis.call('DEL', key) -- of an earlier life of this instance (DECISIONS 1)
      return false
    end
  end
  return value ~= false
end

-- Claims one pending entry unless it must be left alone.
local function reclaim(letter, stream, id, delivered)
  local body = redis.call('XRANGE', stream, id, id)
  if #body == 0 then
    redis.call('XACK', stream, GROUP, id)
    ghosts = ghosts + 1
    return
  end
  local flat, named = body[1][2], {}
  for i = 1, #flat, 2 do
    named[flat[i]] = flat[i + 1]
  end
  if of_another_family(named, FAMILY) then
    other_family = other_family + 1
    return
  end
  if of_another_budget(named, BUDGET) then
    other_budget = other_budget + 1
    return
  end
  if denied(named) then
    return
  end
  if is_leased(named.tenant_id, named.execution_id) then
    leased = leased + 1
    return
  end
  redis.call('XCLAIM', stream, GROUP, CONSUMER, 0, id, 'JUSTID')
  entries[#entries + 1] = {letter, id, delivered, 1, flat}
  room = room - 1
end

local function reclaim_page(letter, stream, cursor)
  local found = pending(stream, cursor)
  for _, entry in ipairs(found) do
    if room == 0 then
      more = 1
      return cursor
    end
    cursor = '(' .. entry[1]
    if not in_hand[letter .. ' ' .. entry[1]] then
      reclaim(letter, stream, entry[1], entry[4])
    end
  end
  if #found < PAGE then
    return '-'
  end
  more = 1
  return cursor
end

local function read_new(letter, stream, most)
  local count = math.min(most, room)
  if count <= 0 then
    return
  end
  local reply = redis.call('XREADGROUP', 'GROUP', GROUP, CONSUMER, 'COUNT', count, 'STREAMS', stream, '>')
  for _, entry in ipairs(reply and reply[1] and reply[1][2] or {}) do
    entries[#entries + 1] = {letter, entry[1], 1, 0, entry[2]}
    room = room - 1
  end
end

local wake_cursor = reclaim_page('w', KEYS[1], ARGV[8])
local queue_cursor = reclaim_page('q', KEYS[2], ARGV[9])
if not (ADOPT and more == 1) then -- what is delivered now must not be met again by the rest of the adopting
  read_new('q', KEYS[2], tonumber(ARGV[13]))
  read_new('w', KEYS[1], room)
  read_new('q', KEYS[2], room)
end
return {'ok', entries, wake_cursor, queue_cursor, ghosts, more, leased, other_family, other_budget}

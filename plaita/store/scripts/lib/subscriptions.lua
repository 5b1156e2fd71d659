-- A wait in the index of subscriptions (DECISIONS 28). The row's `wait_index` names all places it stands in, a line each:
-- execution id, hash of key sets, key set, set of who uses that key set, sets of the index. `wait_task`, of a service's
-- task, likewise: sorted set, hash, of some also the sorted set of all tenants and the member there, task id. Sets of ids, so
-- that doing it twice changes nothing and nothing is counted.
local function lines_of(joined)
  local lines = {}
  for line in string.gmatch(joined or '', '[^\n]+') do
    lines[#lines + 1] = line
  end
  return lines
end

-- `places`: what `wait_index` has after the id. Returns the value for it, and how many places were new.
local function subscribe(id, places)
  local new = redis.call('HSET', places[1], places[2], places[3])
  for i = 3, #places do
    new = new + redis.call('SADD', places[i], id)
  end
  return id .. '\n' .. table.concat(places, '\n'), new
end

-- `task`: what `wait_task` has. Returns the value for it, and how many places were new.
local function assign(id, task, since)
  local new = redis.call('ZADD', task[1], since, task[#task]) + redis.call('HSET', task[2], task[#task], id)
  if #task == 5 then
    new = new + redis.call('ZADD', task[3], since, task[4])
  end
  return table.concat(task, '\n'), new
end

-- Whether `wait_index` names this place.
local function stands_in(joined, place)
  return joined and string.find('\n' .. joined .. '\n', '\n' .. place .. '\n', 1, true) ~= nil
end

-- Out of every place: what is woken or over is not to be found by an event any more. The key set goes with its last user.
local function unsubscribe(row)
  local found = redis.call('HMGET', row, 'wait_index', 'wait_task')
  local places = lines_of(found[1])
  for i = 4, #places do
    redis.call('SREM', places[i], places[1])
  end
  if #places >= 4 and redis.call('EXISTS', places[4]) == 0 then
    redis.call('HDEL', places[2], places[3])
  end
  local task = lines_of(found[2])
  if #task >= 3 then
    redis.call('ZREM', task[1], task[#task])
    redis.call('HDEL', task[2], task[#task])
  end
  if #task == 5 then
    redis.call('ZREM', task[3], task[4])
  end
  if #places + #task > 0 then
    redis.call('HDEL', row, 'wait_index', 'wait_task')
  end
end

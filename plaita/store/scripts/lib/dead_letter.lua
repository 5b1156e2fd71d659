-- Adds to the dead letters, exactly maxlen of them; returns the id and how many old ones were lost.
local function add_dead_letter(key, maxlen, fields)
  local before = redis.call('XLEN', key)
  local id = redis.call('XADD', key, 'MAXLEN', '=', maxlen, '*', unpack(fields))
  return id, before + 1 - redis.call('XLEN', key)
end

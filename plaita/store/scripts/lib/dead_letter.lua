-- Adds to the dead letters and cuts them to maxlen, exactly, the oldest first. Returns the id and how many were lost; -1
-- when they could not be cut: the new one is kept all the same.
local function add_dead_letter(key, maxlen, fields)
  local id = redis.call('XADD', key, '*', unpack(fields))
  local trimmed = redis.pcall('XTRIM', key, 'MAXLEN', '=', maxlen)
  return id, type(trimmed) == 'number' and trimmed or -1
end

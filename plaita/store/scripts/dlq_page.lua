-- Dead letters, the newest first, until so many or so many bytes. KEYS 1 dead letters
-- ARGV 1 from id ('+' the newest, '(id' older than it), 2 how many at most, 3 bytes at most (the first is always given)
-- ok: {id, fields} ..., older ones are left 0|1, length
local found, bytes, from, more = {}, 0, ARGV[1], 0
while true do
  local next_one = redis.call('XREVRANGE', KEYS[1], from, '-', 'COUNT', 1)[1]
  if not next_one then
    break
  end
  for _, word in ipairs(next_one[2]) do
    bytes = bytes + #word
  end
  if #found == tonumber(ARGV[2]) or (#found > 0 and bytes > tonumber(ARGV[3])) then
    more = 1
    break
  end
  found[#found + 1] = next_one
  from = '(' .. next_one[1]
end
return {'ok', found, more, redis.call('XLEN', KEYS[1])}

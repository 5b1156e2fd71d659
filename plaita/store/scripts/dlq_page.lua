-- Dead letters in one direction, until so many or so many bytes. KEYS 1 dead letters
-- ARGV 1 XREVRANGE (the newest first) | XRANGE (the oldest first), 2 first id ('(id' behind it), 3 last id,
--      4 how many at most, 5 bytes at most (the first is always given)
-- ok: {id, fields} ..., more are left 0|1, length
local found, bytes, from, more = {}, 0, ARGV[2], 0
while true do
  local next_one = redis.call(ARGV[1], KEYS[1], from, ARGV[3], 'COUNT', 1)[1]
  if not next_one then
    break
  end
  for _, word in ipairs(next_one[2]) do
    bytes = bytes + #word
  end
  if #found == tonumber(ARGV[4]) or (#found > 0 and bytes > tonumber(ARGV[5])) then
    more = 1
    break
  end
  found[#found + 1] = next_one
  from = '(' .. next_one[1]
end
return {'ok', found, more, redis.call('XLEN', KEYS[1])}

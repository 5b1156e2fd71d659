-- On the server of a stream: the entries after a place.
-- KEYS 1 stream. ARGV 1 id, 2 how many, 3 bytes of all that an answer may hold
-- ok: {{field, value, ...}, ...}, their bytes; of one that alone has more, nothing but its bytes is told
local most, bytes, after, entries = tonumber(ARGV[3]), 0, ARGV[1], {}
for _ = 1, tonumber(ARGV[2]) do
  local found = redis.call('XRANGE', KEYS[1], '(' .. after, '+', 'COUNT', 1)[1]
  if not found then
    break
  end
  local size = 0
  for _, word in ipairs(found[2]) do
    size = size + #word
  end
  if bytes + size > most and #entries > 0 then
    break
  end
  bytes, after = bytes + size, found[1]
  entries[#entries + 1] = size > most and {} or found[2]
end
return {'ok', entries, bytes}

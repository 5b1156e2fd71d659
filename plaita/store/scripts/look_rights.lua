-- Which of these commands this user may not use; runs none of them, so they are no KEYS. ARGV: of each, how many words, and the words
-- ok: known 0|1 (before Redis 7 it cannot be asked), {place of each that is refused}
if not redis.acl_check_cmd then
  return {'ok', 0, {}}
end
local refused, at, place = {}, 1, 0
while at <= #ARGV do
  local count, words = tonumber(ARGV[at]), {}
  for i = 1, count do
    words[i] = ARGV[at + i]
  end
  local fine, allowed = pcall(redis.acl_check_cmd, unpack(words))
  if fine and not allowed then
    refused[#refused + 1] = place
  end
  at, place = at + count + 1, place + 1
end
return {'ok', 1, refused}

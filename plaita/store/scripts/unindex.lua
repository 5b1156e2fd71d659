-- Take members out of the indexes whose row is gone; a page of one index (ledger D4). KEYS 1 the index, 2 index of all, 3 expiry
-- ARGV 1 ns, 2 cursor, 3 about how many. ok: next cursor, members without a row
-- include: key_part
-- include: statuses
local page = redis.call('ZSCAN', KEYS[1], ARGV[2], 'COUNT', ARGV[3])
local dropped = 0
for i = 1, #page[2], 2 do
  local id = page[2][i]
  if redis.call('EXISTS', ARGV[1] .. ':execution:' .. execution_part(id)) == 0 then
    redis.call('ZREM', KEYS[2], id)
    redis.call('ZREM', KEYS[3], id)
    for _, status in ipairs(STATUSES) do
      redis.call('ZREM', KEYS[2] .. ':' .. status, id)
    end
    dropped = dropped + 1
  end
end
return {'ok', page[1], dropped}

-- A delayed record: member in the sorted set by due time, body = MessagePack of {q|w, field, value, ...}, or of a timer
-- {t, row key, wait, field, value, ...}.
local function delay(set, bodies, member, due, stream, fields)
  table.insert(fields, 1, stream)
  redis.call('ZADD', set, text(due), member)
  redis.call('HSET', bodies, member, cmsgpack.pack(fields))
end

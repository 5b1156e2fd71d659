-- A member of the due set that nobody can fire leaves it, unless it or its record changed meanwhile; its history says why.
-- KEYS 1 due set, 2 schedules or '', 3 history. ARGV 1 member, 2 due time as it was read, 3 schedule id, 4 record as it was
-- read or '', 5 rest of the history entry, 6 entries of history at most
-- ok: whether it left 0|1
-- include: time
if redis.call('ZSCORE', KEYS[1], ARGV[1]) ~= ARGV[2] then
  return {'ok', 0}
end
if KEYS[2] ~= '' then
  local record = redis.pcall('HGET', KEYS[2], ARGV[3])
  if (type(record) == 'string' and record or '') ~= ARGV[4] then
    return {'ok', 0}
  end
  if ARGV[4] ~= '' then
    redis.pcall('LPUSH', KEYS[3], '{"fired_at":' .. text(now_ms()) .. ',' .. ARGV[5] .. '}')
    redis.pcall('LTRIM', KEYS[3], 0, tonumber(ARGV[6]) - 1)
  end
end
redis.call('ZREM', KEYS[1], ARGV[1])
return {'ok', 1}

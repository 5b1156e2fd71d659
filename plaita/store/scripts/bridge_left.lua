-- Waits that are over, by an event or by their end, for which something is left to do on another server: those that this host
-- holds or now takes.
-- KEYS 1 records. ARGV 1 prefix, 2 cursor, 3 how many, 4 prefix of locks, 5 holder, 6 ms of a lock
-- ok: next cursor, server time, {digest, record, how it ended ('' where no message did), ...}
-- include: bridge
-- include: time
local found = redis.call('HSCAN', KEYS[1], ARGV[2], 'COUNT', ARGV[3])
local left, fields = {}, found[2]
for i = 1, #fields, 2 do
  local digest = fields[i]
  if #digest == 40 then
    local tenant, id, wait, since = string.match(fields[i + 1], '^([^\n]*)\n([^\n]*)\n([^\n]*)\n([^\n]*)\n')
    local row = redis.pcall('HMGET', namespace(ARGV[1], tenant) .. ':execution:' .. execution_part(id), 'status', 'wait',
      'woken', 'wait_since')
    local over = row.err or not still_waits(row, wait, since)
    if over and hold(ARGV[4] .. digest, ARGV[5], ARGV[6]) then
      left[#left + 1] = digest
      left[#left + 1] = fields[i + 1]
      left[#left + 1] = redis.call('HGET', KEYS[1], digest .. ':ended') or ''
    end
  end
end
return {'ok', found[1], now_ms(), left}

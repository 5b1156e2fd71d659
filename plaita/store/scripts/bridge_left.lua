-- Waits that are over, by an event or by their end, for which something is left to do on another server.
-- KEYS 1 records. ARGV 1 prefix, 2 cursor, 3 how many
-- ok: next cursor, server time, {digest, record, how it ended ('' where no message did), seen to be over since, ...}, {digests
--     whose record cannot be read}
-- include: bridge
-- include: time
local found = redis.call('HSCAN', KEYS[1], ARGV[2], 'COUNT', ARGV[3])
local left, unreadable, fields, now = {}, {}, found[2], text(now_ms())
for i = 1, #fields, 2 do
  local digest = fields[i]
  if #digest == 40 then
    local tenant, id, wait, since = string.match(fields[i + 1], '^([^\n]*)\n([^\n]*)\n([^\n]*)\n([^\n]*)\n')
    if not tenant then
      unreadable[#unreadable + 1] = digest
    else
      local row = redis.pcall('HMGET', namespace(ARGV[1], tenant) .. ':execution:' .. execution_part(id), 'status', 'wait',
        'woken', 'wait_since')
      if row.err or not still_waits(row, wait, since) then
        redis.call('HSETNX', KEYS[1], digest .. ':over', now)
        for _, word in ipairs({digest, fields[i + 1], redis.call('HGET', KEYS[1], digest .. ':ended') or '',
          redis.call('HGET', KEYS[1], digest .. ':over')}) do
          left[#left + 1] = word
        end
      end
    end
  end
end
return {'ok', found[1], now, left, unreadable}

-- Take a consumer's name out of the group, only while nothing is pending for it: deleting it would lose that.
-- KEYS 1 wake, 2 queue, 3 event log. ARGV 1 group, 2 consumer. ok: entries still pending for it (0: the name is gone)
local left = 0
for _, stream in ipairs(KEYS) do
  local pending = redis.pcall('XPENDING', stream, ARGV[1], '-', '+', 1, ARGV[2])
  if not pending.err then
    if #pending == 0 then
      redis.call('XGROUP', 'DELCONSUMER', stream, ARGV[1], ARGV[2])
    else
      left = left + 1
    end
  end
end
return {'ok', left}

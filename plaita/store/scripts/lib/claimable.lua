-- An entry of ours gets so large an idle time that anybody may claim it; 0 when it is not pending for us (any more):
-- another's must not be taken from under it.
local function make_claimable(stream, group, consumer, entry_id, idle)
  local pending = redis.pcall('XPENDING', stream, group, entry_id, entry_id, 1, consumer)
  if pending.err or #pending == 0 then
    return 0
  end
  return #redis.call('XCLAIM', stream, group, consumer, 0, entry_id, 'IDLE', idle, 'JUSTID')
end

-- Settling one carrier: acked and deleted together, so nothing acked stays behind (ledger Q8).
local function settle_carrier(stream, group, entry_id)
  local acked = redis.call('XACK', stream, group, entry_id)
  redis.call('XDEL', stream, entry_id)
  return acked
end

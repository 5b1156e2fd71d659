-- Whether a row in `error` may be woken once more by a retry (ledger S13): nil, or what is exhausted and its key.
local G1_MAX_WAKEUPS, DETERMINISTIC_FAILURE_MAX = 2, 12

local function exhausted(wakeups, nofail)
  if (tonumber(redis.call('GET', wakeups)) or 0) >= G1_MAX_WAKEUPS then
    return 'g1_wakeups_exhausted', wakeups
  end
  if (tonumber(redis.call('GET', nofail)) or 0) >= DETERMINISTIC_FAILURE_MAX then
    return 'deterministic_failure_exhausted', nofail
  end
  return nil
end

-- A row that a backup brought back under its tombstone goes with that: else the delete would be undone by waiting (D2).
local function dies_with(row, tombstone)
  local left = redis.call('PTTL', tombstone)
  if left >= 0 then
    redis.call('PEXPIRE', row, left)
  end
end

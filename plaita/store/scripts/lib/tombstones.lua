-- include: key_part
-- The tombstone of another execution of the same tenant, by the key of one that is known; nil where it was not deleted.
local function tombstone_of(known_key, known_id, other, tenant)
  local head = string.sub(known_key, 1, #known_key - #key_part(known_id))
  return redis.call('HGET', head .. key_part(other), tenant) or nil
end

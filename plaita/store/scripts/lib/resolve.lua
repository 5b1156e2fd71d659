-- The version and hash that a start takes. Returns version, hash; or nil and a refusal.
local function resolve(versions_key, meta_key, version)
  local latest = redis.call('HGET', meta_key, 'latest')
  if not latest then
    return nil, {'refused', 'no_flow'}
  end
  if version == '' or version == 'latest' then
    version = latest
  end
  local hash = redis.call('HGET', versions_key, version)
  if not hash then
    return nil, {'refused', 'no_version', latest}
  end
  return version, hash
end

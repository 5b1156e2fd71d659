-- KEYS 1 versions, 2 meta. ARGV 1 version. ok: version, hash. refused: no_flow, no_version (latest)
-- include: resolve
local version, hash = resolve(KEYS[1], KEYS[2], ARGV[1])
if not version then
  return hash
end
return {'ok', version, hash}

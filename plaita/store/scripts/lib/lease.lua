-- A lease value is 'v2 <holder> <token> <q|w> <entry id>'; nil for any other form.
local function lease_words(value)
  return string.match(value, '^v2 (%S+) (%S+) ([qw]) (%S+)$')
end

-- The value has the token second; another format has none, so it equals no token.
local function lease_is(value, token)
  local _, held = lease_words(value)
  return held == token
end

local TERMINAL = {completed = true, error = true, cancelled = true}

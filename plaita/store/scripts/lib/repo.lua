-- Of a path; the twin of policy/repos.py (ledger G6). From behind, so that its time is linear.
local function last_name(repo)
  return string.reverse(string.match(string.reverse(repo), '^/*([^/]*)'))
end

-- Whether the repository that an entry names is one of `names`, last names, a line each.
local function denies(names)
  local denied = {}
  for name in string.gmatch(names, '[^\n]+') do
    denied[name] = true
  end
  return function(named)
    return named.repo and denied[last_name(named.repo)] or false
  end
end

-- How many of the pending entries are of another family or budget than ours, or for a repository that is denied here, and
-- so left alone (ledger C3, G6).
-- KEYS 1 queue, 2 wake. ARGV 1 group, 2 config family, 3 budget generation, 4 entries to look at, of each stream,
--      5 last names of repositories, a line each, 6.. 'f|b|r q|w id': entries whose body says that they are of another
--      family or budget, or for such a repository
-- ok: of another family, of another budget, for a denied repository, all were looked at 0|1
-- include: generations
-- include: repo
local family, budget, repo, all = 0, 0, 0, 1
local denied = denies(ARGV[5])
local by_body = {}
for i = 6, #ARGV do
  by_body[ARGV[i]] = true
end
for i = 1, 2 do
  local found = redis.pcall('XPENDING', KEYS[i], ARGV[1], '-', '+', ARGV[4])
  if not found.err then
    if #found == tonumber(ARGV[4]) then
      all = 0
    end
    for _, entry in ipairs(found) do
      local body = redis.call('XRANGE', KEYS[i], entry[1], entry[1])
      local flat, named = body[1] and body[1][2] or {}, {}
      for at = 1, #flat, 2 do
        named[flat[at]] = flat[at + 1]
      end
      local name = (i == 1 and ' q ' or ' w ') .. entry[1]
      if by_body['f' .. name] or of_another_family(named, ARGV[2]) then
        family = family + 1
      elseif by_body['b' .. name] or of_another_budget(named, ARGV[3]) then
        budget = budget + 1
      elseif by_body['r' .. name] or denied(named) then
        repo = repo + 1
      end
    end
  end
end
return {'ok', family, budget, repo, all}

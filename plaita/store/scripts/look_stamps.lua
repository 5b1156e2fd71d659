-- Which config families and budget generations the oldest pending carriers name (ledger C3); changes nothing.
-- KEYS 1 stream. ARGV 1 group, 2 entries at most, 3 bytes at most. ok: {family, budget, how many} of each pair
local counts, names, bytes = {}, {}, 0
local found = redis.pcall('XPENDING', KEYS[1], ARGV[1], '-', '+', ARGV[2])
for _, entry in ipairs(found.err and {} or found) do
  if bytes > tonumber(ARGV[3]) then
    break
  end
  local body = redis.call('XRANGE', KEYS[1], entry[1], entry[1])[1]
  local family, budget = '', ''
  for i = 1, body and #body[2] or 0, 2 do
    bytes = bytes + #body[2][i + 1]
    if body[2][i] == 'config_family' then
      family = body[2][i + 1]
    elseif body[2][i] == 'budget_generation' then
      budget = body[2][i + 1]
    end
  end
  local pair = #family .. ' ' .. family .. budget
  if not counts[pair] then
    counts[pair] = 0
    names[#names + 1] = {family, budget, pair}
  end
  counts[pair] = counts[pair] + 1
end
local answer = {'ok'}
for _, name in ipairs(names) do
  answer[#answer + 1] = {name[1], name[2], counts[name[3]]}
end
return answer

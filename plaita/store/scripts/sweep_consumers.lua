-- Take the names of consumers that are long gone out of the group: nothing is pending for them, looked at and deleted in
-- one call, so that nothing can be given to one in between. What is pending for a dead one is reclaimed first.
-- KEYS 1 wake, 2 queue, 3 event log. ARGV 1 group, 2 min idle ms, 3.. names to keep. ok: removed
local keep, removed = {}, 0
for i = 3, #ARGV do
  keep[ARGV[i]] = true
end
for _, stream in ipairs(KEYS) do
  local found = redis.pcall('XINFO', 'CONSUMERS', stream, ARGV[1])
  for _, flat in ipairs(found.err and {} or found) do
    local facts = {}
    for i = 1, #flat, 2 do
      facts[flat[i]] = flat[i + 1]
    end
    if facts.pending == 0 and facts.idle >= tonumber(ARGV[2]) and not keep[facts.name] then
      redis.call('XGROUP', 'DELCONSUMER', stream, ARGV[1], facts.name)
      removed = removed + 1
    end
  end
end
return {'ok', removed}

-- An entry of ours met a lease: where that is not there any more, the entry is claimable at once.
-- KEYS 1 lease, 2 stream of the entry. ARGV 1 the lease that was met, 2 group, 3 consumer, 4 entry id, 5 idle ms
-- ok: done 0|1
-- include: claimable
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return {'ok', 0}
end
return {'ok', make_claimable(KEYS[2], ARGV[2], ARGV[3], ARGV[4], ARGV[5])}

-- Make an entry of ours, for which no lease was taken, claimable at once.
-- KEYS 1 stream. ARGV 1 group, 2 consumer, 3 entry id, 4 idle ms. ok: done 0|1
-- include: claimable
return {'ok', make_claimable(KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4])}

-- KEYS 1 stream. ARGV 1 group, 2 entry id. ok: was pending 0|1
-- include: carrier
return {'ok', settle_carrier(KEYS[1], ARGV[1], ARGV[2])}

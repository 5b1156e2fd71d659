-- A host begins to work for a wait: from here on its record tells everybody what there may be to clear up.
-- KEYS 1 records. ARGV 1 digest, 2 record. ok: the record that stands, which is an earlier host's where there was one
redis.call('HSETNX', KEYS[1], ARGV[1], ARGV[2])
return {'ok', redis.call('HGET', KEYS[1], ARGV[1])}

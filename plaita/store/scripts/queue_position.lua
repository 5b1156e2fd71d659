-- On the server of a stream: what the place is found by from which a wait reads.
-- KEYS 1 stream. ok: server time, id of the last entry or ''
-- include: time
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)
return {'ok', text(now_ms()), last[1] and last[1][1] or ''}

-- A row with all it holds, and its fence, as of one moment. A row that its index does not know is indexed again (ledger D4).
-- KEYS 1 row, 2 lease, 3 cancel, 4 fence, 5 tombstone, 6 index. ARGV 1 id, 2 tenant, 3 ns
-- ok: (nothing without a row) | fields, lease, cancel, fence or '', indexed again 0|1. refused: wrong_type, tombstoned
-- include: indexed_again
local kind = redis.call('TYPE', KEYS[1]).ok
if kind ~= 'hash' and kind ~= 'none' then
  return {'refused', 'wrong_type', kind}
end
local tombstone = redis.call('HGET', KEYS[5], ARGV[2])
if tombstone then
  return {'refused', 'tombstoned', tombstone}
end
if kind == 'none' then
  return {'ok'}
end
return {
  'ok', redis.call('HGETALL', KEYS[1]), redis.call('GET', KEYS[2]), redis.call('GET', KEYS[3]),
  redis.call('GET', KEYS[4]) or '', indexed_again(KEYS[1], KEYS[6], ARGV[1], ARGV[3]),
}

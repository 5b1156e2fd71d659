-- What the dead-letter guard judges by (ledger Q4). KEYS 1 row, 2 lease, 3 tombstone, 4 noderetry of the execution
-- ARGV 1 tenant. ok: the facts of lib/guard, their mark
-- include: guard
local facts = guard_facts(KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1])
return {'ok', facts, guard_mark(facts)}

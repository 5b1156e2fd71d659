-- A new execution: row, index, carrier (DECISIONS 15).
-- KEYS 1 row, 2 flow versions, 3 flow meta, 4 index, 5 index of pending, 6 tombstone, 7 queue, 8 dedup key,
--      9 tenant statuses, 10 tenant quotas, 11 parked tenants, 12 wake
-- ARGV 1 id, 2 tenant, 3 flow, 4 version, 5 input, 6 dedup key or '', 7 dedup ttl ms, 8 nonce, 9 ns, 10.. carrier fields
-- ok: id, version, hash, message id ('' where the carrier waits for a place of its tenant), deduplicated 0|1, status
-- refused: no_flow, no_version (latest), tombstoned (when, why), id_taken (flow of the owner), tenant_disabled
-- include: start
return start_execution(KEYS, ARGV)

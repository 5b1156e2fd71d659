-- Settle a carrier that begin refused since its tenant is disabled (ledger T2), judged again in the call: who enables the
-- tenant looks for what has no carrier once, and one that was dropped after that look would be nobody's.
-- KEYS 1 stream, 2 lease, 3 tenant statuses. ARGV 1 group, 2 entry id, 3 tenant
-- ok: was pending 0|1. refused: changed: the tenant is enabled by now, or somebody holds the execution
-- include: carrier
-- include: tenant_gate
if not tenant_shut(ARGV[3], redis.pcall('HGET', KEYS[3], ARGV[3]), false, '') or redis.call('EXISTS', KEYS[2]) == 1 then
  return {'refused', 'changed'}
end
return {'ok', settle_carrier(KEYS[1], ARGV[1], ARGV[2])}

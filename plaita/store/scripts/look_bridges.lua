-- Queues of other servers: who waits for them and is read for by nobody, and what waits that are over have left there.
-- KEYS 1 tasks of all tenants, 2 records. ARGV 1 prefix, 2 type, 3 prefix of locks, 4 tasks to look at, 5 records to look at,
--      6 ms that something is given time for
-- ok: server time, tasks, tasks that nobody reads for, since when the oldest waits or '', {record, over since, what
--     becomes of its messages, ...}, whether there are more records 0|1
-- include: bridge
-- include: time
local now, grace = now_ms(), tonumber(ARGV[6])
local page = redis.pcall('ZRANGE', KEYS[1], 0, ARGV[4] - 1, 'WITHSCORES')
local unread, oldest = 0, ''
for at = 1, page.err and 0 or #page, 2 do
  local tenant, task = string.match(page[at], '^([^:]*):(.*)$')
  local since = page[at + 1]
  if tenant and now - since > grace then
    local ns = namespace(ARGV[1], tenant)
    local id = redis.pcall('HGET', ns .. ':service:' .. ARGV[2] .. ':of', task)
    local row = type(id) == 'string' and redis.pcall('HMGET', ns .. ':execution:' .. execution_part(id), 'status', 'wait',
      'woken', 'wait_since') or {err = 'gone'}
    local waits = not row.err and given(row[2]) and given(row[4]) and still_waits(row, row[2], row[4])
    if waits and redis.call('EXISTS', ARGV[3] .. bridge_digest(ARGV[1], tenant, id, row[2], row[4])) == 0 then
      unread = unread + 1
      oldest = oldest ~= '' and oldest or since
    end
  end
end
local left, scan = {}, redis.pcall('HSCAN', KEYS[2], 0, 'COUNT', ARGV[5])
for at = 1, scan.err and 0 or #scan[2], 2 do
  local digest = string.match(scan[2][at], '^(.*):over$')
  local since = scan[2][at + 1]
  if digest and now - (tonumber(since) or 0) > grace then
    left[#left + 1] = redis.call('HGET', KEYS[2], digest) or ''
    left[#left + 1] = since
    left[#left + 1] = redis.call('HGET', KEYS[2], digest .. ':ended') or 'back'
  end
end
local total = redis.pcall('ZCARD', KEYS[1])
return {
  'ok', now, type(total) == 'number' and total or 0, unread, oldest, left, (not scan.err and scan[1] ~= '0') and 1 or 0,
}

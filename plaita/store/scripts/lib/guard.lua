-- include: key_part
-- What the dead-letter guard judges by (ledger Q4), all texts:
-- {readable 0|1, status or '', lease or '', lost hand-outs of the next node, its failures in a row, tombstoned 0|1, flow}
-- `mark` of it changes with any of them.
local function guard_facts(row, lease, tombstone, noderetry, tenant)
  local kind = redis.call('TYPE', row).ok
  local held, buried = redis.pcall('GET', lease), redis.pcall('HGET', tombstone, tenant)
  if (kind ~= 'hash' and kind ~= 'none') or type(held) == 'table' or type(buried) == 'table' then
    return {'0', '', '', '0', '0', '0', ''}
  end
  local found = redis.call('HMGET', row, 'status', 'next_node', 'lost', 'lost_node', 'retried', 'flow_id')
  local next_node, lost, failures = found[2] or '', 0, 0
  if (found[4] or '') == next_node then
    lost = tonumber(found[3]) or 0
  end
  -- Without a committed step the node is the flow's first, which the row does not name: it is the only one listed.
  for part in string.gmatch(found[5] or '', '[^:]+') do
    if next_node == '' or part == key_part(next_node) then
      local count = redis.pcall('GET', noderetry .. ':' .. part)
      failures = math.max(failures, type(count) == 'string' and tonumber(count) or 0)
    end
  end
  return {
    '1', found[1] or '', held or '', string.format('%.0f', lost), string.format('%.0f', failures), buried and '1' or '0',
    found[6] or '',
  }
end

local function guard_mark(facts)
  return table.concat(facts, '\n')
end

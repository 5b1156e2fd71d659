-- Whether a tenant may begin anything now: the twin of policy/tenants.py (ledger T2, T3).
-- `status` and `epoch` as HGET and GET answer them by pcall: what is no text was missing or could not be read.
-- Texts are compared byte by byte by hand: the server's own comparison goes by its locale.
local function text_order(a, b)
  for i = 1, math.min(#a, #b) do
    local left, right = string.byte(a, i), string.byte(b, i)
    if left ~= right then
      return left < right and 'older' or 'newer'
    end
  end
  return #a < #b and 'older' or 'newer'
end

local function epoch_trouble(epoch, expected)
  if expected == '' then
    return nil
  end
  if type(epoch) ~= 'string' or epoch == '' then
    return 'missing'
  end
  if string.match(epoch, '^%d+$') and string.match(expected, '^%d+$') then
    epoch, expected = string.gsub(epoch, '^0+', ''), string.gsub(expected, '^0+', '')
    if #epoch ~= #expected then
      return #epoch < #expected and 'older' or 'newer'
    end
  end
  if epoch == expected then
    return nil
  end
  return text_order(epoch, expected)
end

-- nil where it may, else the reason and what is added to it. `expected` '': no epoch is looked at.
local function tenant_shut(tenant, status, epoch, expected)
  local why = tenant ~= 'default' and tenant ~= '' and epoch_trouble(epoch, expected)
  if why then
    return 'tenant_epoch', why
  end
  if status == 'disabled' then
    return 'tenant_disabled', ''
  end
  return nil
end

-- How many of its executions may run at a time, nil for no limit.
local function quota_of(said)
  local quota = type(said) == 'string' and string.match(said, '^%d+$') and tonumber(said) or 0
  return quota > 0 and quota or nil
end

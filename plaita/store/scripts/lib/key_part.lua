-- Ids as they stand in keys: the twin of ids.key_part, keys.execution_part and Keys.ns. Ids come in NFC.
local KEY_ESCAPES = {['%'] = '%25', [':'] = '%3A', ['{'] = '%7B', ['}'] = '%7D'}
local RESERVED_IDS = {index = true, expiry = true}

local function key_part(id)
  return (string.gsub(id, '[%%:{}]', KEY_ESCAPES))
end

local function execution_part(id)
  local part = key_part(id)
  if RESERVED_IDS[part] then
    return string.format('%%%02X%s', string.byte(part), string.sub(part, 2))
  end
  return part
end

local function namespace(prefix, tenant)
  if not tenant or tenant == '' or tenant == 'default' then
    return prefix
  end
  return prefix .. ':' .. key_part(tenant)
end

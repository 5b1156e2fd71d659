-- Redis TIME in whole milliseconds, as a number; text() writes such numbers without an exponent.
local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function text(number)
  return string.format('%.0f', number)
end

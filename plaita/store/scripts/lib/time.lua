-- Redis TIME in whole milliseconds, as a number; text() writes such numbers without an exponent.
-- Asked once a script: the server's time stands still while it runs.
local asked_ms
local function now_ms()
  if not asked_ms then
    local time = redis.call('TIME')
    asked_ms = time[1] * 1000 + math.floor(time[2] / 1000)
  end
  return asked_ms
end

local function text(number)
  return string.format('%.0f', number)
end

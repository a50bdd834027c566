-- The server's clock in milliseconds; it stands still while a script runs.
local function clock()
  local time = redis.call("TIME")
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

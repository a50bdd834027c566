-- heartbeat, finish and release: what the token of a run's holder may do; 0 where the token does not hold the run.
local key, channel = KEYS[1], ARGV[5]
local call, slot, token, status = unpack(ARGV)

local format, open, ended, text = unpack(redis.call("HMGET", key, "format", "open", "ended", slot))
check_format(key, format)
if not text then
  return 0
end
local run = read(text)
if run.token ~= token then
  return 0
end

if run.status == "open" and call == "heartbeat" then
  run.since = digits(clock())
  redis.call("HSET", key, slot, written(run))
  return 1
elseif run.status == "open" and call == "finish" then
  run.status, run.lost = status, ""
  redis.call("HSET", key, slot, written(run), "open", without(open, slot), "ended", with(ended, slot))
  return 1
elseif run.status == "open" and call == "release" then
  local now = clock()
  run.status, run.used = "released", digits(run.used - 1)
  if run.since + run.lease > now then
    run.lease = digits(now - run.since)
  end
  redis.call("HSET", key, slot, written(run))
  redis.pcall("PUBLISH", channel, "released") -- a hint: where it may not be given, backups ask in time
  return 1
end
local repeated = call == "finish" and (run.status == "success" or run.status == "failed")
  or call == "release" and run.status == "released"
return repeated and 1 or 0

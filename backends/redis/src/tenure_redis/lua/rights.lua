-- The first command that this user may not use or that the server refuses, with its words. What removes is tried first,
-- so that nothing is left behind.
local key = KEYS[1]
local probes = {
  { "TIME" }, { "GET", key }, { "EXISTS", key },
  { "HDEL", key, "a" }, { "ZREM", key, "a" }, { "ZREMRANGEBYRANK", key, 1, 1 },
  { "HSET", key, "a", "b" }, { "HMGET", key, "a" }, { "HGETALL", key }, { "HDEL", key, "a" },
  { "ZADD", key, 0, "a" }, { "ZRANGEBYLEX", key, "-", "+" }, { "ZREVRANGE", key, 0, -1 }, { "ZREM", key, "a" },
}
local refused = ""
for _, probe in ipairs(probes) do
  local reply = redis.pcall(unpack(probe))
  if type(reply) == "table" and reply.err then
    refused = probe[1] .. ": " .. reply.err
    break
  end
end
redis.pcall("HDEL", key, "a")
redis.pcall("ZREM", key, "a")
return refused

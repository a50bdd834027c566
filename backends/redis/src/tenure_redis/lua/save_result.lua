-- Keeps a record among the newest of its job; a record is a member of a sorted set that orders by text alone.
local key = KEYS[1]
local place, record, overwrites, keep = unpack(ARGV)

local known = redis.call("ZRANGEBYLEX", key, "[" .. place .. "[", "(" .. place .. "\\")[1]
if known and overwrites == "0" then
  return 0
end
redis.call("ZADD", key, 0, place .. record)
if known and known ~= place .. record then
  redis.call("ZREM", key, known)
end
redis.call("ZREMRANGEBYRANK", key, 0, -keep - 1)
return 1

-- Keeps cards, each as the moment at which it was told and its text, and forgets those that nobody has told for so
-- long, if that is said.
local key, kept_ms = KEYS[1], tonumber(ARGV[1])
for place = 2, #ARGV, 2 do
  redis.call("HSET", key, ARGV[place], ARGV[place + 1])
end
if kept_ms then
  local before, all = clock() - kept_ms, redis.call("HGETALL", key)
  for place = 1, #all, 2 do
    if tonumber(string.match(all[place + 1], "^%d+")) < before then
      redis.call("HDEL", key, all[place])
    end
  end
end
return 1

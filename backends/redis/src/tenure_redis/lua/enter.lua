-- Gives the format of the namespace's store, after making it where there is none and one is to be made.
local format = redis.call("GET", KEYS[1])
if not format and ARGV[2] == "1" then
  format = ARGV[1]
  redis.call("SET", KEYS[1], format)
end
return format

-- Gives the clock, and for each unfinished run of the jobs its job's place among the keys and its facts.
local found = {}
for place, key in ipairs(KEYS) do
  local format, open = unpack(redis.call("HMGET", key, "format", "open"))
  check_format(key, format)
  for index = 1, #(open or "") / WIDTH do
    table.insert(found, place)
    table.insert(found, facts(read(redis.call("HMGET", key, at(open, index))[1] or "")))
  end
end
return {clock(), found}

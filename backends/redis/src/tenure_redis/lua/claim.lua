-- Decides a claim: the rows of docs/protocol.md, section 3, in their order.
local key = KEYS[1]
local slot, token, instance, lease, mode, overlap, max_attempts, max_late, after = unpack(ARGV)
local KEPT_UNFINISHED = 1000
local KEPT_ENDED = overlap == "skip" and 16 or 128
local EARLY = 1000

local skip = overlap == "skip"
local now = clock()
local format, fence, floor, open, ended, text =
  unpack(redis.call("HMGET", key, "format", "fence", "floor", "open", "ended", slot))
check_format(key, format)
if not format then
  fence, floor, open, ended = "0", "", "", ""
end

local function other(found)
  return read(redis.call("HMGET", key, found)[1] or "")
end

local function is_over(run)
  return run.status ~= "open" or now >= run.since + run.lease
end

-- The newest other run with a live lease, which is in the way under skip.
local function in_the_way()
  local others = skip and without(open, slot) or ""
  for index = #others / WIDTH, 1, -1 do
    local run = other(at(others, index))
    if not is_over(run) then
      return run
    end
  end
  return nil
end

local function newer_has_started()
  return skip and (slot < floor or slot < string.sub(open, -WIDTH) or slot < string.sub(ended, -WIDTH))
end

local function renew(run)
  run.lease, run.since = lease, digits(now)
  redis.call("HSET", key, slot, written(run))
  return {"won", now, facts(run), run.lost}
end

-- The others that a win supersedes, oldest first: under skip the older ones, else those beyond the bound that are over.
local function superseded(others)
  local found = {}
  local count = skip and older(others, slot) or #others / WIDTH + 1 - KEPT_UNFINISHED
  for index = 1, count do
    local run = other(at(others, index))
    if skip or is_over(run) then
      table.insert(found, run)
    end
  end
  return found
end

local function win(attempt, used, lost)
  local others = without(open, slot)
  local beaten = others == "" and {} or superseded(others)
  for _, run in ipairs(beaten) do
    lost = lost .. "\n" .. facts(run)
    others, ended = without(others, run.slot), with(ended, run.slot)
  end
  local excess = math.max(#ended - KEPT_ENDED * WIDTH, 0)
  local dropped = string.sub(ended, 1, excess)
  if floor < string.sub(dropped, -WIDTH) then
    floor = string.sub(dropped, -WIDTH)
  end
  local time = digits(now)
  fence = digits(math.max(fence + 1, now))
  local line = slot .. " open " .. attempt .. " " .. used .. " " .. fence .. " " .. lease .. " " .. time .. " " .. time
    .. " " .. instance
  -- This is the first write: a server that is out of memory refuses it before anything has changed.
  redis.call("HSET", key, "format", FORMAT, "fence", fence, "floor", floor, "open", with(others, slot),
    "ended", string.sub(ended, excess + 1), slot, line .. "\n" .. token .. lost)
  for _, run in ipairs(beaten) do
    run.status, run.lost = "superseded", ""
    redis.call("HSET", key, run.slot, written(run))
  end
  for index = 1, #dropped / WIDTH do
    redis.call("HDEL", key, at(dropped, index))
  end
  return {"won", now, line, lost}
end

if not text then
  local early = slot - now
  if slot <= floor or newer_has_started() then
    return {"done", now, "superseded", "", ""} -- row 9
  elseif mode == "takeover" or tonumber(after) > 0 or early > EARLY then
    return {"none", now} -- rows 10 and 11
  elseif max_late ~= "" and -early > tonumber(max_late) then
    return {"late", now} -- row 12
  end
  local blocking = in_the_way()
  if blocking then
    return {"overlap", now, facts(blocking), "0"} -- row 13
  end
  return win("1", "1", "") -- row 14
end

local run = read(text)
if run.status ~= "open" and run.status ~= "released" then
  return {"done", now, run.status, run.attempt, run.status == "exhausted" and run.lost or ""} -- row 1
elseif not is_over(run) then
  return run.token == token and renew(run) or {"running", now, facts(run)} -- row 2, lease live, and row 3
end

local overtaken, blocking = newer_has_started(), in_the_way()
if run.status == "open" and run.token == token and not overtaken and not blocking then
  return renew(run) -- row 2, lease over
elseif overtaken then
  return {"done", now, "superseded", run.attempt, ""} -- row 4
elseif tonumber(run.attempt) ~= tonumber(after) then
  return {"running", now, facts(run)} -- row 5
elseif tonumber(run.used) >= tonumber(max_attempts) then
  run.lost = "\n" .. facts(run)
  run.status = "exhausted"
  redis.call("HSET", key, slot, written(run), "open", without(open, slot), "ended", with(ended, slot))
  return {"done", now, "exhausted", run.attempt, run.lost} -- row 6
elseif blocking then
  return {"overlap", now, facts(blocking), run.attempt} -- row 7
end
return win(digits(run.attempt + 1), digits(run.used + 1), "\n" .. facts(run)) -- row 8

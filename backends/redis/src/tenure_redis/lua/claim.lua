-- Decides a claim: the rows of docs/protocol.md, section 3, in their order.
local key = KEYS[1]
local slot, token, instance, lease, mode, overlap, max_attempts, max_late, after = unpack(ARGV)
local KEPT_UNFINISHED = 1000
local KEPT_ENDED = {skip = 16, allow = 128}
local EARLY = 1000

local now = clock()
local format, fence, floor, open, ended, text =
  unpack(redis.call("HMGET", key, "format", "fence", "floor", "open", "ended", slot))
check_format(key, format)
if not format then
  fence, floor, open, ended = "0", "", "", ""
end

local function is_over(run)
  return run.status ~= "open" or now >= run.since + run.lease
end

-- The other unfinished runs, read when they are needed, each once.
local known = {}
local function other(index)
  local found = at(open, index)
  if not known[found] then
    known[found] = read(redis.call("HMGET", key, found)[1] or "")
  end
  return known[found]
end

local function in_the_way()
  if overlap ~= "skip" then
    return nil
  end
  for index = #open / WIDTH, 1, -1 do
    if at(open, index) ~= slot and not is_over(other(index)) then
      return other(index)
    end
  end
  return nil
end

local function newer_has_started()
  local newest = floor
  for _, last in ipairs({string.sub(open, -WIDTH), string.sub(ended, -WIDTH)}) do
    if newest < last then
      newest = last
    end
  end
  return overlap == "skip" and newest > slot
end

local function running(run)
  return {"running", now, facts(run)}
end

local function blocked(run, attempt)
  return {"overlap", now, facts(run), attempt}
end

local function done(run)
  return {"done", now, run.status, run.attempt, run.status == "exhausted" and run.lost or ""}
end

local function won(run)
  return {"won", now, facts(run), run.lost}
end

local function renew(run)
  run.lease, run.since = lease, digits(now)
  redis.call("HSET", key, slot, written(run))
  return won(run)
end

local function exhaust(run)
  run.lost = "\n" .. facts(run)
  run.status = "exhausted"
  redis.call("HSET", key, slot, written(run), "open", without(open, slot), "ended", with(ended, slot))
  return done(run)
end

-- The other unfinished runs that this win supersedes, oldest first.
local function superseded()
  local found = {}
  local excess = #without(open, slot) / WIDTH + 1 - KEPT_UNFINISHED
  local place = 0
  for index = 1, #open / WIDTH do
    local one = at(open, index)
    if one ~= slot then
      place = place + 1
      if overlap == "skip" and one >= slot or overlap ~= "skip" and place > excess then
        break
      end
      if overlap == "skip" or is_over(other(index)) then
        table.insert(found, other(index))
      end
    end
  end
  return found
end

-- Drops the oldest ended runs beyond those that are kept, raises the floor, and gives what was dropped.
local function bound()
  local excess = #ended - KEPT_ENDED[overlap] * WIDTH
  if excess <= 0 then
    return ""
  end
  local dropped = string.sub(ended, 1, excess)
  ended = string.sub(ended, excess + 1)
  if floor < string.sub(dropped, -WIDTH) then
    floor = string.sub(dropped, -WIDTH)
  end
  return dropped
end

-- The first write is an HSET, which a server that is out of memory refuses before anything has changed.
local function store(fields, dropped)
  for first = 1, #fields, FIELDS_AT_ONCE do
    redis.call("HSET", key, unpack(fields, first, math.min(first + FIELDS_AT_ONCE - 1, #fields)))
  end
  for index = 1, #dropped / WIDTH do
    redis.call("HDEL", key, at(dropped, index))
  end
end

local function win(attempt, used, lost)
  local fields = {}
  for _, run in ipairs(superseded()) do
    lost = lost .. "\n" .. facts(run)
    run.status, run.lost = "superseded", ""
    open, ended = without(open, run.slot), with(ended, run.slot)
    table.insert(fields, run.slot)
    table.insert(fields, written(run))
  end
  local run = {
    slot = slot,
    status = "open",
    attempt = digits(attempt),
    used = digits(used),
    fence = digits(math.max(fence + 1, now)),
    lease = lease,
    since = digits(now),
    started = digits(now),
    holder = instance,
    token = token,
    lost = lost
  }
  open = without(open, slot)
  open = with(open, slot)
  local dropped = bound()
  for _, field in ipairs({
    "format", FORMAT, "fence", run.fence, "floor", floor, "open", open, "ended", ended, slot, written(run)
  }) do
    table.insert(fields, field)
  end
  store(fields, dropped)
  return won(run)
end

local function claim_over(run)
  local overtaken = newer_has_started()
  local blocking = in_the_way()
  if run.status == "open" and run.token == token and not overtaken and not blocking then
    return renew(run) -- row 2, lease over
  elseif overtaken then
    return {"done", now, "superseded", run.attempt, ""} -- row 4
  elseif tonumber(run.attempt) ~= tonumber(after) then
    return running(run) -- row 5
  elseif tonumber(run.used) >= tonumber(max_attempts) then
    return exhaust(run) -- row 6
  elseif blocking then
    return blocked(blocking, run.attempt) -- row 7
  end
  return win(run.attempt + 1, run.used + 1, "\n" .. facts(run)) -- row 8
end

local function claim_unknown()
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
    return blocked(blocking, "0") -- row 13
  end
  return win(1, 1, "") -- row 14
end

if not text then
  return claim_unknown()
end
local run = read(text)
if run.status ~= "open" and run.status ~= "released" then
  return done(run) -- row 1
elseif is_over(run) then
  return claim_over(run)
elseif run.token == token then
  return renew(run) -- row 2, lease live
end
return running(run) -- row 3

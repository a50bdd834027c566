-- A job is one hash: format, fence, floor, open, ended, and a field for each run, named by its slot.
--
-- Slots are texts of 15 digits, so that they compare as texts; open and ended are slots joined, oldest first.
-- A run is lines of text: its facts, its token, and the facts of each attempt that its win replaced.
-- Integers stay texts from the client to the store and back, unless they are reckoned with: those are below 2^53.
local FORMAT = "1"
local WIDTH = 15
local FACTS = "^(%d+) (%l+) (%d+) (%d+) (%d+) (%-?%d+) (%d+) (%d+) ([^\n]+)\n([^\n]+)(.*)$"

local function check_format(key, format)
  if format ~= FORMAT and (format or redis.call("EXISTS", key) == 1) then
    error("tenure: format " .. (format or "none") .. " in " .. key)
  end
end

local function read(text)
  local run = {}
  run.slot, run.status, run.attempt, run.used, run.fence, run.lease, run.since, run.started, run.holder,
    run.token, run.lost = string.match(text, FACTS)
  if not run.slot then
    error("tenure: not a run")
  end
  return run
end

local function facts(run)
  return run.slot .. " " .. run.status .. " " .. run.attempt .. " " .. run.used .. " " .. run.fence .. " " .. run.lease
    .. " " .. run.since .. " " .. run.started .. " " .. run.holder
end

local function written(run)
  return facts(run) .. "\n" .. run.token .. run.lost
end

local function digits(number)
  return string.format("%.0f", number)
end

local function at(slots, index)
  return string.sub(slots, (index - 1) * WIDTH + 1, index * WIDTH)
end

-- How many of the slots are older.
local function older(slots, slot)
  local low, high = 0, #slots / WIDTH
  while low < high do
    local middle = math.floor((low + high) / 2)
    if at(slots, middle + 1) < slot then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end

local function with(slots, slot)
  if string.sub(slots, -WIDTH) < slot then
    return slots .. slot
  end
  local cut = older(slots, slot) * WIDTH
  return string.sub(slots, 1, cut) .. slot .. string.sub(slots, cut + 1)
end

local function without(slots, slot)
  if slots == slot then
    return ""
  end
  local index = older(slots, slot)
  if at(slots, index + 1) ~= slot then
    return slots
  end
  return string.sub(slots, 1, index * WIDTH) .. string.sub(slots, (index + 1) * WIDTH + 1)
end

// The store's clock, counted on by this browser's monotonic one, and how times are written.

let ahead = Date.now() - performance.now();
let local = read("tenure.local") === "yes";

export function learn(now) {
  ahead = now - performance.now();
}

export function now() {
  return performance.now() + ahead;
}

export function isLocal() {
  return local;
}

export function toggleZone() {
  local = !local;
  write("tenure.local", local ? "yes" : "no");
}

function parts(ms) {
  const date = new Date(local ? ms - new Date(ms).getTimezoneOffset() * 60_000 : ms);
  return date.toISOString();
}

// 17:10:05, with milliseconds only where there are some.
export function clock(ms) {
  const text = parts(ms);
  return ms % 1_000 ? text.slice(11, 23) : text.slice(11, 19);
}

export function day(ms) {
  return parts(ms).slice(0, 10);
}

// The time of a day that is today, else with its date.
export function moment(ms) {
  return day(ms) === day(now()) ? clock(ms) : `${day(ms)} ${clock(ms)}`;
}

export function zone() {
  return local ? "local" : "UTC";
}

// About how long: one unit, or two next to each other where the second one matters.
export function about(ms) {
  const seconds = Math.floor(Math.max(ms, 0) / 1_000);
  if (seconds < 90) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 90) return pair(minutes, "min", seconds % 60, "s");
  const hours = Math.floor(minutes / 60);
  if (hours < 36) return pair(hours, "h", minutes % 60, "min");
  return pair(Math.floor(hours / 24), "d", hours % 24, "h");
}

function pair(count, unit, rest, smaller) {
  return count < 10 && rest ? `${count} ${unit} ${rest} ${smaller}` : `${count} ${unit}`;
}

// What runs out soon, to a tenth of a second.
export function left(ms) {
  return ms < 10_000 ? `${(Math.max(ms, 0) / 1_000).toFixed(1)} s` : about(ms);
}

// How long exactly.
export function took(ms) {
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1_000).toFixed(2)} s`;
  return about(ms);
}

function read(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null; // it may be switched off
  }
}

function write(name, value) {
  try {
    localStorage.setItem(name, value);
  } catch {
    // then it is asked for again next time
  }
}

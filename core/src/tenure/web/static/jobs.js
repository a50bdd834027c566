// The list of jobs, a row each: its recent slots, and how it is now.

import { fill, isBad, isUnstarted, status } from "./cells.js";
import { find, make, say } from "./dom.js";
import { held, job, jobs } from "./live.js";
import { about, now } from "./time.js";

const PATIENCE_MS = 5_000;
const list = find("#rows");
const filter = find("#filter");
const rows = new Map();
const inView = new Set();
let holds = new Map();
let chosen = {};

// Rows that are not in view are not drawn: there may be a thousand.
const views = new IntersectionObserver(
  (entries) => {
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting) inView.add(target);
      else inView.delete(target);
      if (isIntersecting) draw(target);
    }
  },
  { rootMargin: "200px" },
);

export function isOverdue(name) {
  const at = job(name)?.overdue_at_ms;
  return at !== null && at !== undefined && now() > at;
}

// The last slot of which it is known how it ended, unless it was skipped.
function latest(name) {
  return job(name)?.slots.find((slot) => !["running", "lease over", "late", "overlap"].includes(status(slot)));
}

export function isTroubled(name) {
  const slot = latest(name);
  return isOverdue(name) || (slot !== undefined && isBad(status(slot)));
}

function build(name) {
  const strip = make("div", { class: "strip", role: "group", "aria-label": `Recent slots of ${name}` });
  const row = make(
    "li",
    { class: "row" },
    make("button", { class: "job" }, make("b", {}, name), make("small")),
    strip,
    make("i", { class: "next" }, make("i")),
    make("p", { class: "now" }, make("b"), make("small")),
  );
  row.dataset.job = name;
  views.observe(row);
  return row;
}

// Which rows there are, in which order; those that stay are moved only if they must.
export function arrange() {
  holds = Map.groupBy(held(), (run) => run.job);
  const words = filter.elements.words.value.trim().toLowerCase().split(/\s+/);
  const which = filter.elements.which.value;
  const troubled = new Set(jobs().filter(isTroubled));
  const fits = (name) =>
    words.every((word) => name.toLowerCase().includes(word)) &&
    (which === "all" || (which === "trouble" ? troubled.has(name) : holds.has(name)));
  const shown = jobs().filter(fits);
  shown.sort((one, other) => rank(one, troubled) - rank(other, troubled));
  place(shown);
  say(find("#all"), String(jobs().length));
  say(find("#troubled"), String(troubled.size));
  say(find("#holding"), String(holds.size));
}

function rank(name, troubled) {
  return isOverdue(name) ? 0 : troubled.has(name) ? 1 : 2;
}

function place(shown) {
  const wanted = new Set(shown);
  for (const [name, row] of rows) {
    if (wanted.has(name)) continue;
    views.unobserve(row);
    inView.delete(row);
    row.remove();
    rows.delete(name);
  }
  let next = list.firstElementChild;
  for (const name of shown) {
    if (!rows.has(name)) rows.set(name, build(name));
    const row = rows.get(name);
    if (row === next) next = next.nextElementSibling;
    else list.insertBefore(row, next);
  }
}

export function refresh(names) {
  for (const row of inView) if (names.has(row.dataset.job)) draw(row);
}

export function refreshAll() {
  for (const row of inView) draw(row);
}

export function choose(name, slot) {
  chosen = { name, slot: String(slot) };
  for (const row of inView) {
    row.classList.toggle("chosen", row.dataset.job === name);
    for (const cell of row.querySelectorAll(".cell")) {
      cell.setAttribute("aria-pressed", row.dataset.job === name && cell.dataset.slot === String(slot) ? "true" : "false");
    }
  }
}

// Wider where fingers point.
function cellWidth() {
  return parseFloat(getComputedStyle(list).getPropertyValue("--cell"));
}

function draw(row) {
  const name = row.dataset.job;
  const known = job(name);
  if (!known) return;
  const [title, strip] = row.children;
  say(title.lastChild, known.card?.words ?? "no instance has told of it");
  title.title = `${name}\n${known.card?.words ?? ""}`;
  const room = Math.max(Math.floor(strip.clientWidth / cellWidth()), 8);
  fill(strip, known.slots.slice(0, room), chosen.name === name ? chosen.slot : undefined);
  tell(row, known);
}

// How each row in view is now; called several times a second.
export function tick() {
  for (const row of inView) {
    const known = job(row.dataset.job);
    if (known) tell(row, known);
  }
}

function tell(row, known) {
  const [first, second] = row.lastChild.children;
  const overdue = isOverdue(known.job);
  row.classList.toggle("overdue", overdue);
  row.classList.toggle("troubled", !overdue && isTroubled(known.job));
  row.classList.toggle("waiting", !overdue && isWaiting(known));
  ripen(row.querySelector(".next"), known);
  say(first, overdue ? `overdue ${about(now() - known.overdue_at_ms)}` : state(known));
  say(second, history(known, overdue));
}

// The slot to come fills up until it is due.
function ripen(next, known) {
  const left = known.due_slot - now();
  const whole = known.due_slot - (known.slots[0]?.[0] ?? Number.NaN);
  next.classList.toggle("none", known.due_slot === null);
  next.firstChild.style.transform = `scaleY(${whole > 0 ? Math.min(Math.max(1 - left / whole, 0), 1) : 0})`;
}

function state(known) {
  const runs = holds.get(known.job);
  if (runs?.some((run) => !run.live)) return "lease over";
  if (runs) return `running ${about(now() - runs[0].started_at)}`;
  if (known.due_slot === null) return known.card ? "no slot to come" : "";
  const left = known.due_slot - now();
  if (left > 0) return `due in ${about(left + 999)}`;
  return isWaiting(known) ? `due for ${about(-left)}` : "due now";
}

// A slot is due, and nobody has started it for a while.
function isWaiting(known) {
  return known.due_slot !== null && now() - known.due_slot > PATIENCE_MS && !holds.has(known.job);
}

function history(known, overdue) {
  const slot = latest(known.job);
  const ended = slot?.[1].at(-1)[3];
  if (!overdue && slot && isBad(status(slot)) && ended) return `${status(slot)} ${about(now() - ended)} ago`;
  if (known.success_at_ms) return `success ${about(now() - known.success_at_ms)} ago`;
  if (!known.slots.length) return "no runs yet";
  const count = known.slots.length;
  return `no success in ${count}${known.more ? "+" : ""} ${count === 1 ? "slot" : "slots"}`;
}

// The same place in the strip of the job above or below.
export function across(cell, key) {
  const fromRight = [...cell.parentElement.children].reverse().indexOf(cell);
  let row = cell.closest(".row");
  while ((row = key === "ArrowUp" ? row.previousElementSibling : row.nextElementSibling)) {
    if (!inView.has(row)) draw(row);
    const cells = row.querySelectorAll(".cell");
    if (cells.length) return cells[Math.max(cells.length - 1 - fromRight, 0)];
  }
  return undefined;
}

// Where the focus goes back to.
export function cellOf(name, slot) {
  return rows.get(name)?.querySelector(slot === undefined ? ".job" : `[data-slot="${CSS.escape(slot)}"]`);
}

filter.addEventListener("submit", (event) => event.preventDefault());
filter.addEventListener("input", arrange);
new ResizeObserver(refreshAll).observe(list);

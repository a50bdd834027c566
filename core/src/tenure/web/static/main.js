// What belongs together: news go to the parts of the page, clicks and keys to the story.

import { beside, focus } from "./cells.js";
import { find, say } from "./dom.js";
import * as holders from "./held.js";
import * as list from "./jobs.js";
import * as lately from "./lately.js";
import { about as page, held, isConnected, job, jobs, onNews, parts, start } from "./live.js";
import * as story from "./story.js";
import { clock, now, toggleZone, zone } from "./time.js";

let changed = new Set();
let frame;

onNews((names) => {
  changed = changed.union(names);
  frame ??= requestAnimationFrame(render);
});

function render() {
  frame = undefined;
  const names = changed;
  changed = new Set();
  if (names.has("about")) say(find("#store"), page().store);
  list.arrange();
  list.refresh(new Set([...names].filter((name) => name.startsWith("job ")).map((name) => name.slice(4))));
  if (names.has("held")) holders.show();
  lately.show();
  const { name, slot } = story.current() ?? {};
  if (name !== undefined && names.has(`job ${name}`)) {
    story.refresh();
    if (slotChanged(name, slot)) story.open(name, slot);
  }
  tick();
}

// The story is read again only if something became of it.
let told = "";
function slotChanged(name, slot) {
  const news = JSON.stringify([name, slot, job(name)?.slots.find((one) => one[0] === slot)]);
  const is = news !== told;
  told = news;
  return is;
}

function tick() {
  list.tick();
  holders.tick();
  tellVerdict();
  tellTrouble();
  say(find("#zone"), `${clock(Math.floor(now() / 1_000) * 1_000)} ${zone()}`);
}

function tellVerdict() {
  const overdue = jobs().filter(list.isOverdue).length;
  const count = jobs().length;
  const text = !parts.has("names")
    ? parts.get("store")?.state === "away" ? "The store is away" : "Looking …"
    : count === 0
      ? "No jobs yet"
      : overdue === 0
        ? count === 1 ? "The job is on time" : `All ${count} jobs are on time`
        : `${overdue} of ${count} jobs ${overdue === 1 ? "is" : "are"} overdue`;
  say(find("#verdict"), text);
  document.body.classList.toggle("alarm", overdue > 0);
  const title = overdue ? `(${overdue}) tenure` : "tenure";
  if (document.title !== title) {
    document.title = title;
    find("#icon").href = overdue ? "static/alarm.svg" : "static/calm.svg";
  }
  say(find("#counts"), parts.has("names") ? counts() : "");
}

function counts() {
  const { failed, taken } = lately.count();
  const live = held().filter((run) => !holders.isOver(run));
  const holding = new Set(live.map((run) => run.holder)).size;
  const now = live.length
    ? `${live.length} held by ${holding} ${holding === 1 ? "instance" : "instances"}`
    : "nothing held";
  const over = held().length - live.length;
  const waiting = over ? ` · ${over} with ${over === 1 ? "its" : "their"} lease over` : "";
  return `${now}${waiting} · in the last hour ${failed} failed, ${taken} taken over`;
}

function tellTrouble() {
  const store = parts.get("store") ?? {};
  const old = parts.has("names") ? " What you see is old." : "";
  const since = store.since_ms - (store.since_ms % 1_000);
  const text = !isConnected()
    ? parts.size ? `The server of this page does not answer.${old}` : ""
    : store.state === "away"
      ? `The store has been away since ${clock(since)}.${old} ${store.error}`
      : "";
  const box = find("#trouble");
  box.hidden = text === "";
  say(box, text);
  document.body.classList.toggle("stale", text !== "");
  const empty = parts.has("names") && !jobs().length;
  const nothing = find("#nothing");
  nothing.hidden = !parts.has("names") || find("#rows").children.length > 0;
  say(nothing, empty ? "No instance has told the store of its jobs yet. Start one, or name jobs with --job." : "No job fits.");
}

// Clicks

function show(name, slot) {
  told = "";
  list.choose(name, slot);
  history.replaceState(null, "", `#${new URLSearchParams(slot === undefined ? { job: name } : { job: name, slot })}`);
  return story.open(name, slot);
}

function close() {
  const { name, slot } = story.current() ?? {};
  if (name === undefined) return;
  story.close();
  list.choose();
  history.replaceState(null, "", location.pathname);
  (list.cellOf(name, slot === undefined ? undefined : String(slot)) ?? list.cellOf(name))?.focus();
}

document.addEventListener("click", (event) => {
  const at = (selector) => event.target.closest(selector);
  if (at(".close")) close();
  else if (at("#story .cell")) show(story.current().name, Number(at(".cell").dataset.slot));
  else if (at(".cell")) show(at(".row").dataset.job, Number(at(".cell").dataset.slot));
  else if (at(".job")) show(at(".row").dataset.job);
  else if (at(".run, .happening")) show(at("button").dataset.job, Number(at("button").dataset.slot));
  else if (at("#zone")) changeZone();
});

// Keys: left and right in a strip, up and down to the next line, or to another job.
document.addEventListener("keydown", (event) => {
  const cell = event.target.closest?.(".cell");
  if (!cell || event.ctrlKey || event.metaKey || event.altKey) return;
  const vertical = event.key === "ArrowUp" || event.key === "ArrowDown";
  const to = vertical && cell.closest(".row") ? list.across(cell, event.key) : beside(cell, event.key);
  if (!to) return;
  event.preventDefault();
  focus(to);
});

// While a story is open it follows the focus.
let following;
find("#rows").addEventListener("focusin", (event) => {
  const cell = event.target.closest(".cell");
  if (!cell || !story.current()) return;
  clearTimeout(following);
  following = setTimeout(() => show(cell.closest(".row").dataset.job, Number(cell.dataset.slot)), 120);
});

document.addEventListener("keydown", (event) => {
  const words = find("#filter").elements.words;
  if (event.key === "Escape") {
    if (story.current()) close();
    else if (document.activeElement === words) words.blur();
  } else if (event.key === "/" && document.activeElement !== words && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    words.focus();
  }
});

function changeZone() {
  toggleZone();
  list.refreshAll();
  lately.redraw();
  tick();
  const { name, slot } = story.current() ?? {};
  if (name !== undefined) story.open(name, slot);
}

// A link to a story opens it.
function follow() {
  const wanted = new URLSearchParams(location.hash.slice(1));
  if (wanted.has("job")) show(wanted.get("job"), wanted.has("slot") ? Number(wanted.get("slot")) : undefined);
}

addEventListener("hashchange", follow);
follow();
setInterval(tick, 250);
start();

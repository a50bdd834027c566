// A slot as a cell: a bar as high as its run took long, standing on the attempts that were lost before.

import { make } from "./dom.js";
import { moment, now, took } from "./time.js";

const LOST = new Set(["crashed", "interrupted", "lease over"]);
const UNSTARTED = new Set(["late", "overlap", "superseded", "exhausted"]);

export function attempts(slot) {
  return Math.max(...slot[1].map(([attempt]) => attempt));
}

export function last(slot) {
  return slot[1].at(-1);
}

export function status(slot) {
  return last(slot)[1];
}

export function isUnstarted(status) {
  return UNSTARTED.has(status);
}

export function isBad(status) {
  return status === "failed" || status === "crashed" || status === "exhausted";
}

function length([, , started, ended]) {
  return started === null ? 0 : (ended ?? now()) - started;
}

// Of those that have ended: one that hangs does not make the others small.
export function longest(slots) {
  return Math.max(1, ...slots.map(last).map((attempt) => (attempt[3] === null ? 0 : length(attempt))));
}

export function label(slot) {
  const [, status, started, ended] = last(slot);
  const times = attempts(slot) > 1 ? `, attempt ${attempts(slot)}` : "";
  const length = started !== null && ended !== null ? `, ${took(ended - started)}` : "";
  return `${moment(slot[0])}  ${status}${times}${length}`;
}

// The name of the class that gives it its colour.
function tone(status) {
  if (UNSTARTED.has(status)) return status === "exhausted" ? "exhausted" : "skipped";
  return status.replace(" ", "-");
}

function build(slot) {
  const before = slot[1].slice(0, -1).filter(([, status]) => LOST.has(status));
  const feet = before.slice(-2).map(([, status]) => make("i", { class: `foot ${tone(status)}` }));
  const bar = make("i", { class: `bar ${tone(status(slot))}` });
  const text = label(slot);
  return make("button", { class: "cell", tabindex: "-1", title: text, "aria-label": text }, bar, ...feet);
}

function shape(cell, slot, longest) {
  const share = (length(last(slot)) / longest) ** 0.7;
  const bar = cell.firstChild;
  if (!UNSTARTED.has(status(slot))) bar.style.height = `${Math.round(20 + 80 * Math.min(share, 1))}%`;
}

// Have a strip show the slots, the newest first in the list and last in the strip; cells that stay keep their focus.
export function fill(strip, slots, chosen) {
  const top = longest(slots);
  const wanted = new Set(slots.map((slot) => String(slot[0])));
  const known = new Map();
  for (const cell of [...strip.children]) {
    if (wanted.has(cell.dataset.slot)) known.set(cell.dataset.slot, cell);
    else cell.remove();
  }
  let place = strip.firstElementChild;
  for (const slot of slots.toReversed()) {
    const cell = update(known.get(String(slot[0])), slot);
    if (cell === place) place = place.nextElementSibling;
    else strip.insertBefore(cell, place);
    shape(cell, slot, top);
    cell.setAttribute("aria-pressed", String(slot[0]) === chosen ? "true" : "false");
  }
  if (!strip.querySelector('[tabindex="0"]')) strip.lastElementChild?.setAttribute("tabindex", "0");
}

// The same button with another content, where there is one: it may have the focus.
function update(known, slot) {
  const sign = JSON.stringify(slot[1]);
  if (known?.dataset.sign === sign) return known;
  const fresh = build(slot);
  const cell = known ?? fresh;
  if (known) {
    cell.replaceChildren(...fresh.childNodes);
    cell.title = fresh.title;
    cell.setAttribute("aria-label", fresh.title);
  }
  cell.dataset.slot = slot[0];
  cell.dataset.sign = sign;
  return cell;
}

// The cell that an arrow key leads to in a strip, also one of several lines.
export function beside(cell, key) {
  const strip = cell.parentElement;
  if (key === "ArrowLeft") return cell.previousElementSibling;
  if (key === "ArrowRight") return cell.nextElementSibling;
  if (key === "Home") return strip.firstElementChild;
  if (key === "End") return strip.lastElementChild;
  const line = Math.floor(strip.clientWidth / cell.offsetWidth);
  const place = [...strip.children].indexOf(cell);
  if (key === "ArrowUp") return strip.children[place - line];
  if (key === "ArrowDown") return strip.children[place + line];
  return undefined;
}

export function focus(cell) {
  for (const other of cell.parentElement.querySelectorAll('[tabindex="0"]')) other.tabIndex = -1;
  cell.tabIndex = 0;
  cell.focus({ preventScroll: true });
  cell.scrollIntoView({ block: "nearest" });
}

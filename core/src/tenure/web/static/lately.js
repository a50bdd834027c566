// What went wrong lately, or nearly: failures, takeovers, slots that were not run; the newest first.

import { attempts, isUnstarted, status } from "./cells.js";
import { find, make, say } from "./dom.js";
import { job, jobs } from "./live.js";
import { clock, now } from "./time.js";

const HOUR_MS = 3_600_000;
const MOST = 40;
const list = find("#happenings");
let shown = "";

function kind(slot) {
  const ended = status(slot);
  if (ended === "success" || ended === "running") return attempts(slot) > 1 ? "taken over" : undefined;
  return ended === "crashed" ? "lost" : ended;
}

function tone(kind) {
  if (kind === "failed" || kind === "exhausted") return "bad";
  return isUnstarted(kind) ? "soft" : "lost";
}

// One line for several slots in a row of which the same is to be said.
function happenings(name, since) {
  const found = [];
  let open;
  for (const slot of job(name)?.slots ?? []) {
    if (slot[0] < since) break;
    const what = kind(slot);
    if (what !== undefined && what === open?.what) {
      open.count += 1;
      open.first = slot[0];
    } else {
      open = what === undefined ? undefined : { name, slot: slot[0], first: slot[0], what, count: 1 };
      if (open) found.push(open);
    }
  }
  return found;
}

// How much happened in the last hour, as far as it is known here.
export function count() {
  const since = now() - HOUR_MS;
  const total = { failed: 0, taken: 0 };
  for (const name of jobs()) {
    for (const slot of job(name)?.slots ?? []) {
      if (slot[0] < since) break;
      if (status(slot) === "failed" || status(slot) === "exhausted") total.failed += 1;
      if (attempts(slot) > 1) total.taken += 1;
    }
  }
  return total;
}

export function show() {
  const all = jobs().flatMap((name) => happenings(name, now() - HOUR_MS));
  all.sort((one, other) => other.slot - one.slot || (one.name < other.name ? -1 : 1));
  const news = all.slice(0, MOST);
  const sign = JSON.stringify(news);
  if (sign === shown) return;
  shown = sign;
  list.replaceChildren(...news.map(line));
  say(find("#lately-title"), news.length ? "In the last hour" : "In the last hour: nothing to tell");
}

export function redraw() {
  shown = "";
  show();
}

function line({ name, slot, first, what, count }) {
  const times = count > 1 ? `${what} ×${count}` : what;
  const title = count > 1 ? `${count} slots in a row, since ${clock(first)}` : undefined;
  const item = make(
    "li",
    {},
    make("button", { class: `happening ${tone(what)}`, title }, make("time", {}, clock(slot)), make("b", {}, name), make("span", {}, times)),
  );
  item.firstChild.dataset.job = name;
  item.firstChild.dataset.slot = slot;
  return item;
}

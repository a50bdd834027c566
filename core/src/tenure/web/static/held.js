// Who holds what, and for how long still.

import { find, make, say } from "./dom.js";
import { held, job } from "./live.js";
import { about, clock, left as countdown, now } from "./time.js";

const MOST = 200;
const list = find("#holders");
const items = new Map();
const leases = new Map();

const key = (run) => `${run.slot} ${run.attempt} ${run.job}`;

function build(run) {
  const item = make(
    "li",
    {},
    make(
      "button",
      { class: "run" },
      make("b", {}, run.job),
      make("span", { class: "left" }),
      make("small", { class: "who" }),
      make("small", { class: "since" }),
      make("i", { class: "lease" }, make("i")),
    ),
  );
  item.firstChild.dataset.job = run.job;
  item.firstChild.dataset.slot = run.slot;
  return item;
}

export function show() {
  const runs = held().slice(0, MOST);
  const wanted = new Set(runs.map(key));
  for (const [name, item] of items) {
    if (wanted.has(name)) continue;
    item.remove();
    items.delete(name);
    leases.delete(name);
  }
  for (const run of runs) {
    if (!items.has(key(run))) {
      items.set(key(run), build(run));
      list.append(items.get(key(run)));
    }
  }
  tick();
}

export const isOver = (run) => !run.live || run.expires_at_ms <= now();

export function tick() {
  const over = held().filter(isOver).length;
  const more = over ? `, lease over: ${over}` : "";
  say(find("#held-title"), `Held now: ${held().length - over || "nothing"}${more}`);
  for (const run of held()) {
    const item = items.get(key(run));
    if (item) tell(item.firstChild, run);
  }
}

function tell(button, run) {
  const [, left, who, since, lease] = button.children;
  const ms = run.expires_at_ms - now();
  const over = isOver(run);
  // Without a card the longest lease that was seen is the whole of it.
  const whole = job(run.job)?.card?.lease_ms ?? Math.max(leases.get(key(run)) ?? 1, ms);
  leases.set(key(run), whole);
  button.classList.toggle("over", over);
  say(left, over ? "lease over" : countdown(ms));
  say(who, run.holder);
  say(since, `${clock(run.slot)}${run.attempt > 1 ? `, attempt ${run.attempt}` : ""}, for ${about(now() - run.started_at)}`);
  lease.firstChild.style.transform = `scaleX(${Math.min(Math.max(ms / whole, 0), 1)})`;
}

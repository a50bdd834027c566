// The story of a slot, and what its job is.

import { fill } from "./cells.js";
import { find, make, say } from "./dom.js";
import { about as page, ask, job } from "./live.js";
import { day, clock, moment, now, took, about, zone } from "./time.js";

const panel = find("#story");
let shown;
let asked = 0;
let kept = [];
let trigger;

export function current() {
  return shown;
}

export function close() {
  shown = undefined;
  trigger = undefined;
  panel.hidden = true;
  panel.replaceChildren();
}

// Without a slot it is about the job alone. What was asked for before and comes later is dropped.
export async function open(name, slot) {
  if (shown?.name !== name) trigger = undefined;
  shown = { name, slot };
  const number = ++asked;
  try {
    const [story, slots] = await Promise.all([
      slot === undefined ? undefined : ask("story", { job: name, slot }),
      ask("slots", { job: name }),
    ]);
    if (number === asked && shown) draw(name, story, slots);
  } catch (error) {
    if (number === asked && shown) panel.replaceChildren(head(name), make("p", { class: "error" }, error.message));
  }
  panel.hidden = shown === undefined;
}

// New slots join those that are kept; all else stays as it is, and so does the focus.
export function refresh() {
  const strip = panel.querySelector(".kept");
  if (!strip) return;
  const fresh = job(shown.name)?.slots ?? [];
  const oldest = fresh.at(-1)?.[0] ?? Number.POSITIVE_INFINITY;
  kept = [...fresh, ...kept.filter((slot) => slot[0] < oldest)];
  fill(strip, kept, String(shown.slot));
  say(panel.querySelector(".count"), `${kept.length} slots kept`);
}

function head(name) {
  const close = make("button", { class: "close", "aria-label": "Close", title: "Close (Esc)" }, "×");
  return make("div", { class: "head" }, make("h2", { id: "story-title" }, name), close);
}

function draw(name, story, slots) {
  const top = panel.scrollTop;
  const focused = panel.contains(document.activeElement) ? document.activeElement : undefined;
  kept = slots;
  panel.replaceChildren(head(name), ...(story ? slotParts(story) : []), ...jobParts(name), ...slotsParts());
  panel.scrollTop = top;
  for (const error of panel.querySelectorAll("pre")) error.scrollTop = error.scrollHeight; // it ends with what it is
  const again = focused?.dataset.slot ? `[data-slot="${focused.dataset.slot}"]` : ".close";
  if (focused) (panel.contains(focused) ? focused : panel.querySelector(again))?.focus();
}

function slotParts(story) {
  const when = make("p", { class: "when" }, make("b", {}, clock(story.slot)), ` ${day(story.slot)}, ${zone()}`);
  when.append(make("span", { class: `badge ${story.status.replace(" ", "-")}` }, story.status));
  const started = story.attempts.filter((attempt) => attempt.started_at !== null);
  const advice = story.advice ? [make("p", { class: "advice" }, story.advice)] : [];
  return [when, ...(started.length ? [chart(story.slot, started)] : []), lines(story), ...errors(story), ...advice];
}

// Attempts below each other on one axis of time, from the slot on.
function chart(slot, attempts) {
  const ends = attempts.map((one) => one.ended_at ?? now());
  const begin = attempts[0].started_at;
  const end = Math.max(...ends, begin + 1);
  // A run that came late by far would be a dot at the end of nothing.
  const from = begin - slot > 3 * (end - begin) ? begin - (end - begin) * 0.08 : slot;
  const at = (ms) => `${((Math.max(ms, from) - from) / (end - from)) * 100}%`;
  const lanes = attempts.map((one, index) => {
    const bar = make("i", { class: `span ${one.status.replace(" ", "-")}` });
    bar.style.left = at(one.started_at);
    bar.style.width = `calc(${at(ends[index])} - ${at(one.started_at)})`;
    const name = make("small", {}, make("b", {}, `${one.attempt} `), one.instance ?? "nobody recorded who");
    return make("li", {}, name, make("div", { class: "track" }, bar));
  });
  return make("div", { class: "chart", "aria-hidden": "true" }, make("ol", {}, ...lanes), axis(from - slot, end - slot));
}

const STEPS_MS = [1, 2, 5, 10, 20, 50, 100, 200, 500].concat(
  [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1_800, 3_600, 7_200, 21_600, 86_400].map((seconds) => seconds * 1_000),
);

function axis(from, to) {
  const step = STEPS_MS.find((ms) => (to - from) / ms <= 5) ?? to - from;
  const ticks = make("div", { class: "axis" });
  for (let ms = Math.ceil(from / step) * step; ms <= to; ms += step) {
    const place = (ms - from) / (to - from);
    const length = ms < 1_000 ? `${Math.round(ms)} ms` : about(ms);
    const tick = make("span", {}, place > 0.87 ? "" : ms === 0 ? "due" : `+${length}`);
    tick.style.left = `${place * 100}%`;
    ticks.append(tick);
  }
  return ticks;
}

function lines(story) {
  const line = ({ kind, text, at_ms: at }) =>
    make(
      "li",
      { class: kind === "end" ? `end ${story.status}` : kind },
      make("time", {}, at === null ? "" : kind === "running" ? "now" : offset(at - story.slot)),
      make("span", {}, text),
    );
  return make("ol", { class: "lines" }, ...story.lines.filter(({ text }) => text !== "due").map(line));
}

function offset(ms) {
  return `${ms < 0 ? "−" : "+"}${took(Math.abs(ms))}`;
}

function errors(story) {
  return story.lines
    .filter((line) => line.error)
    .map((line) => make("pre", { tabindex: "0", "aria-label": "The error" }, line.error));
}

function jobParts(name) {
  const known = job(name);
  const card = known?.card;
  const parts = [];
  if (page().triggers.includes(name)) parts.push((trigger ??= triggers(name)));
  if (!card) return [...parts, make("p", { class: "soft" }, "No instance has left a card of this job in the store.")];
  const facts = [
    ["Schedule", card.words],
    ["", card.schedule.startsWith("cron ") ? card.schedule : null],
    ["Next slot", known.due_slot === null ? "none" : moment(known.due_slot)],
    ["Lease", card.lease],
    ["Attempts", `at most ${card.max_attempts}`],
    ["Overlap", card.overlap],
    ["Too late", card.max_late === null ? "never" : `after ${card.max_late}`],
    ["Told by", `${card.instance}, ${about(now() - card.seen_at_ms)} ago`],
  ].filter(([, text]) => text !== null);
  const list = make("dl", { class: "facts" });
  for (const [title, text] of facts) list.append(make("dt", {}, title), make("dd", {}, text));
  return [...parts, make("h3", {}, "The job"), list];
}

function slotsParts() {
  if (!kept.length) return [];
  const strip = make("div", { class: "strip kept", role: "group", "aria-label": "All slots kept" });
  fill(strip, kept, String(shown.slot));
  return [make("h3", { class: "count" }, `${kept.length} slots kept`), strip];
}

// To run a job takes two clicks, the second one where the first was not.
function triggers(name) {
  const box = make("p", { class: "triggers" });
  const said = make("span", { class: "said", role: "status" });
  const first = make("button", { class: "trigger", onclick: () => box.replaceChildren(...sure) }, "Run now …");
  const sure = [
    make("span", {}, "Run it now?"),
    make("button", { class: "trigger", onclick: () => box.replaceChildren(first, said) }, "No"),
    make("button", { class: "trigger yes", onclick: () => run(name, box, first, said) }, "Yes, run it"),
  ];
  box.append(first, said);
  return box;
}

async function run(name, box, first, said) {
  box.replaceChildren(first, said);
  first.disabled = true;
  try {
    const answer = await ask("trigger", { job: name }, { method: "POST", headers: { "x-tenure-token": page().token } });
    said.textContent = answer.outcome === "won" ? `runs, slot ${clock(answer.slot)}` : `not run: ${answer.outcome}`;
  } catch (error) {
    said.textContent = error.message;
  }
  first.disabled = false;
}

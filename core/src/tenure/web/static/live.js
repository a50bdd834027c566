// What the server tells: parts by name, the latest of each.

import { learn } from "./time.js";

export const parts = new Map();
const listeners = [];
let source;
let connected = false;

export function onNews(listener) {
  listeners.push(listener);
}

export function isConnected() {
  return connected;
}

export function jobs() {
  return parts.get("names") ?? [];
}

export function job(name) {
  return parts.get(`job ${name}`);
}

export function held() {
  return parts.get("held") ?? [];
}

export function about() {
  return parts.get("about") ?? { triggers: [] };
}

export function start() {
  source = new EventSource("events");
  source.addEventListener("message", (event) => take(JSON.parse(event.data)));
  source.addEventListener("error", () => {
    connected = false;
    tell(new Set(["connection"]));
    if (source.readyState === EventSource.CLOSED) setTimeout(start, 5_000); // it was refused; else it tries itself
  });
}

// A page that nobody sees asks for nothing.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) source?.close();
  else if (source?.readyState === EventSource.CLOSED) start();
});

function take(message) {
  learn(message.now_ms);
  if ("about" in message.parts) parts.clear(); // a stream begins with all there is
  for (const [name, value] of Object.entries(message.parts)) parts.set(name, value);
  const changed = new Set(Object.keys(message.parts));
  if (!connected) changed.add("connection");
  connected = true;
  tell(changed);
}

function tell(changed) {
  for (const listener of listeners) listener(changed);
}

export async function ask(path, query, options) {
  const answer = await fetch(`${path}?${new URLSearchParams(query)}`, options);
  const said = await answer.json();
  if (!answer.ok) throw new Error(said.error ?? answer.statusText);
  return said;
}

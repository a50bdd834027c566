// Elements without markup: what comes from the store is text, always.

export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (key === "class") element.className = value;
    else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

// Text that stays the same is not touched, so that a selection in it stays too.
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export const find = (selector) => document.querySelector(selector);

// Making elements. Texts come from clients and engines, so they are only ever set as text, never as markup.

/** The element of an id. */
export const at = (id) => document.getElementById(id);

/** A new element. `attributes` are set as they are, but `text`, and `on…` which listen; null and false leave them out. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") element.textContent = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Set a text only where it differs: what is unchanged is not laid out anew. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const SVG = "http://www.w3.org/2000/svg";

function svg(tag, attributes) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

/** The mark of a role: a diamond on a solid line, or a circle on a dashed one. Without a role a dotted line. */
export function mark(role) {
  const box = svg("svg", { viewBox: "0 0 28 12", class: `mark ${role}`, "aria-hidden": "true" });
  box.append(svg("path", { d: "M0 6H28", class: "line" }));
  if (role === "speculative") box.append(svg("path", { d: "M14 1L19 6L14 11L9 6Z", class: "shape" }));
  if (role === "baseline") box.append(svg("circle", { cx: 14, cy: 6, r: 4.2, class: "shape" }));
  return box;
}

/** A role's name with its mark before it. */
export function named(role) {
  return make("span", { class: `role ${role}` }, mark(role), role);
}

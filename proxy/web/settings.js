// The configuration in force: what was set beside the defaults, and what the file says that is not in force.

import { ask, reload } from "./actions.js";
import { at, make, say } from "./dom.js";
import { get } from "./feed.js";
import { store } from "./store.js";
import { plain } from "./words.js";

/** Wire the buttons. */
export function beginSettings() {
  at("reload").addEventListener("click", () => ask(reload()));
  at("whole").addEventListener("toggle", async () => {
    if (!at("whole").open) return;
    try {
      say(at("effective"), await get("config", "text"));
    } catch (error) {
      say(at("effective"), error.message);
    }
  });
}

/** Ask for it and show it. */
export async function tellSettings() {
  const told = await get("config/differences");
  const parts = [];
  if (told.problems.length) {
    parts.push(make("p", { class: "bad", text: "✕ The file as it is now would be refused:" }), make("ul", {}, ...told.problems.map((text) => make("li", { text }))));
  } else if (told.pending.length) {
    parts.push(make("p", { class: "held", text: "■ The file differs from what is in force:" }), table(["Key", "In force", "In the file", "Takes"], told.pending.map(pending)));
  } else parts.push(make("p", { class: "good", text: "✓ The file is in force as it is." }));
  const urls = Object.entries(store.state?.urls ?? {}).map(([role, url]) => [`backends.${role}.url`, url, "has none"]);
  parts.push(make("p", { class: "quiet", text: "Set by the file or the command line; every other key is at its default:" }), table(["Key", "In force", "Default"], [...urls, ...told.set.map(({ key, value, default: usual }) => [key, plain(value) + unused(key), plain(usual)])]));
  at("differences").replaceChildren(...parts);
}

/** A pin that is set for another policy pins nothing. */
function unused(key) {
  const policy = store.state?.policy;
  return key === "routing.pin" && policy !== "pinned" ? ` (pins nothing: the policy is ${policy})` : "";
}

const pending = ({ key, in_force, in_file, needs_restart }) => [key, plain(in_force), plain(in_file), needs_restart ? "a restart" : "a reload"];

function table(heads, rows) {
  const head = make("tr", {}, ...heads.map((text) => make("th", { scope: "col", text })));
  const body = rows.map((cells) => make("tr", {}, ...cells.map((text, index) => make("td", { "data-label": heads[index] }, make("code", { text })))));
  return make("div", { class: "table" }, make("table", {}, make("thead", {}, head), make("tbody", {}, ...body)));
}

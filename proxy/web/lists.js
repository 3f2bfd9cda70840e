// The journal, and the story: what of it changed the traffic, together with the turns that are seen in the history.

import { at, make, say } from "./dom.js";
import { LETTERS } from "./paint.js";
import { now, store } from "./store.js";
import { turns } from "./turns.js";
import { ago, clock } from "./words.js";

// What changes where requests go.
const MOVES = new Set(["regime", "circuit", "health", "eligible", "pin", "drain", "reload", "learning", "started", "draining", "reload_failed",
  "refusals", "refusals_over", "failures", "failures_over", "silent", "silent_over"]);
// What of it came of the load, and is no change of what steers it.
const CAME = new Set(["turn", "refusals", "refusals_over", "failures", "failures_over"]);
const MAX_SHOWN = 100;
const WORDS = {
  regime: "regime", circuit: "circuit", health: "health", eligible: "eligible", pin: "pin", drain: "drain",
  refusals: "refused", refusals_over: "refused", failures: "failed", failures_over: "failed",
  reload: "configuration", reload_failed: "configuration refused", engine_seen: "engine", engine_changed: "engine changed",
  silent: "silent", silent_over: "silent", learning: "learning", disagreement: "warning", caution: "warning", started: "start", draining: "stop", turn: "seen in charts",
};

let found = [];

/** Look for turns anew; they are marked on the charts as well. */
export function lookForTurns() {
  found = turns();
}

/** What is marked on the charts, oldest first. */
export function marked() {
  return [...store.entries.filter(moves), ...found].sort((one, two) => one.at_s - two.at_s);
}

/** Whether an entry that is marked changed what steers requests: the regime, a backend or the settings. */
export const steers = ({ kind }) => !CAME.has(kind);

// A reload of an unchanged file has moved nothing, but for one that ends what a refused one had begun.
function moves(entry) {
  if (entry.kind === "reload" && !entry.numbers.mended && entry.sentence.includes("nothing has changed")) return false;
  return MOVES.has(entry.kind) || entry.kind === "engine_changed";
}

/** Show both lists; `choose(at_s)` shows a moment in the charts. */
export function tellLists(choose) {
  const story = marked().reverse().slice(0, MAX_SHOWN);
  fill(at("story"), story, choose, "Nothing has changed where requests go since this page knows.");
  fill(at("entries"), store.entries.slice(0, MAX_SHOWN), choose, "Nothing is noted yet.");
}

/** How long ago is said anew, without new lines. */
export function tellAges() {
  for (const element of document.querySelectorAll("[data-ago]")) say(element, ago(now() - Number(element.dataset.ago)));
}

function fill(list, entries, choose, none) {
  const key = entries.map((entry) => `${entry.at_s}${entry.kind}`).join();
  if (list.dataset.key === key && list.children.length) return;
  list.dataset.key = key;
  list.replaceChildren(...(entries.length ? entries.map((entry) => line(entry, choose)) : [make("li", { class: "quiet", text: none })]));
}

function line(entry, choose) {
  const when = make("button", { type: "button", class: "when", onclick: () => choose(entry.at_s), title: "Show this moment in the charts", text: clock(entry.at_s) });
  return make(
    "li",
    { class: `entry ${entry.kind}` },
    make("span", { class: "letter", "aria-hidden": "true", text: LETTERS[entry.kind] ?? "·" }),
    when,
    make("span", { class: "quiet age", "data-ago": entry.at_s, text: ago(now() - entry.at_s) }),
    make("span", { class: "kind", text: WORDS[entry.kind] ?? entry.kind }),
    make("span", { class: "what", text: entry.sentence }),
  );
}

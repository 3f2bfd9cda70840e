// What is wrong now and what to be warned of, the worst first: in the band, in the header, and in the window's title.

import { at, make, say } from "./dom.js";
import { length, store, total } from "./store.js";
import { capital, clock, percent, several } from "./words.js";

// The band has room for so many; the rest is told by its button.
const SHOWN = 2;
// A burst is told until its end is noted in the journal; its present is counted over so many seconds.
const LATELY = 15;
// More than this on an engine than was sent from here, for so long, is no stale poll.
const DRIFT = 2;
const DRIFTING_MS = 10_000;
const drifting = {};
let told = [];

/** Wire the button. */
export function beginNotices() {
  at("all-notices").addEventListener("click", () => {
    say(at("detail-title"), several(told.length, "warning"));
    at("detail-what").replaceChildren(...told.map((each) => line(each)));
    at("detail").showModal();
  });
}

/** Show what is so by the state, the last seconds and the journal. */
export function tellNotices() {
  told = notices();
  const key = told.map(({ severe, text }) => `${severe}${text}`).join("\n");
  const box = at("notices");
  if ((box.dataset.key ?? "-") === key) return;
  box.dataset.key = key;
  box.dataset.level = told.some(({ severe }) => severe) ? "bad" : told.length ? "held" : "good";
  const none = make("p", { class: "quiet", text: "✓ Nothing to warn of." });
  at("notice-lines").replaceChildren(...(told.length ? told.slice(0, SHOWN).map((each) => line(each)) : [none]));
  say(at("all-notices"), told.length > SHOWN ? `Read all ${told.length}` : "Read");
  at("all-notices").classList.toggle("absent", !told.length);
  tellStanding();
}

/** Nothing is known while the proxy does not answer. */
export function unknownStanding() {
  standing("unknown", "");
}

function tellStanding() {
  const { state } = store;
  const severe = told.filter(({ severe: bad }) => bad);
  if (state.phase !== "serving") standing("bad", `✕ ${state.phase}`);
  else if (!state.ready) standing("bad", "✕ not ready");
  else if (severe.length) standing("bad", `✕ ${several(severe.length, "trouble")}`);
  else standing("good", "✓ serving");
}

function standing(level, text) {
  at("standing").dataset.state = level;
  say(at("standing"), text);
  document.title = level === "bad" ? "✕ Crossover" : "Crossover";
}

function notices() {
  const { state } = store;
  const severe = (text) => ({ severe: true, text });
  const mild = (text) => ({ severe: false, text });
  const troubles = (state.troubles ?? []).map(({ message, severe: bad }) => ({ severe: bad, text: message }));
  return [
    ...troubles.filter((each) => each.severe),
    ...[burst("refusals", "refused", "were refused"), burst("failures", "failures", "failed")].filter(Boolean).map(severe),
    ...troubles.filter((each) => !each.severe),
    ...(state.pinned ? [mild(`everything is pinned to ${state.pinned} by an operator.`)] : []),
    ...state.backends.map(drift).filter(Boolean).map(mild),
    ...state.warnings.map((each) => mild(each.message)),
  ];
}

/** What a burst that is not over has done lately. */
function burst(kind, column, verb) {
  const last = store.entries.find((entry) => entry.kind === kind || entry.kind === `${kind}_over`);
  if (last?.kind !== kind) return null;
  const end = length();
  const count = total(column, end - LATELY, end);
  return `${several(count, "request")} ${verb} in the last ${LATELY} s; it began at ${clock(last.at_s)}: the journal, below, has the codes.`;
}

function drift({ role, drift: more, in_flight }) {
  if (more === null || more <= Math.max(DRIFT, in_flight / 10)) {
    delete drifting[role];
    return null;
  }
  drifting[role] ??= performance.now();
  if (performance.now() - drifting[role] < DRIFTING_MS) return null;
  return `${role} runs ${several(more, "sequence")} more than were sent from here: traffic goes round this proxy, or clients have left.`;
}

const line = ({ severe, text }) =>
  make("p", { class: severe ? "bad" : "held" }, make("b", { text: severe ? "✕ " : "! " }), make("span", { text: capital(text) }));

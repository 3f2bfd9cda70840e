// The page: a look at the start, the stream from then on, and who shows what of it. Each part is in a file of its own.

import { beginActions } from "./actions.js";
import { beginBackends, tellBackends } from "./backends.js";
import { Charts } from "./charts.js";
import { CurveChart } from "./curvechart.js";
import { beginDecisions, tellDecisions, tellHeads, tellRate } from "./decisions.js";
import { at, named, say } from "./dom.js";
import { follow, get } from "./feed.js";
import { tellGone } from "./gone.js";
import { lookForTurns, marked, steers, tellAges, tellLists } from "./lists.js";
import { beginSettings, tellSettings } from "./settings.js";
import { beginNotices, tellNotices, unknownStanding } from "./notices.js";
import { add, decide, favouredFor, fill, freshen, length, note, now, setBack, silence, store, take, total } from "./store.js";
import { tellVerdict } from "./verdict.js";
import { ROLES, ago, figure, percent, several, span } from "./words.js";

// The curves change by reloads and by learning; the settings by reloads. To compare them with their file costs the proxy
// as much as a quarter of a minute of the stream, so that a page that nobody sees does not ask.
const LOOK_AGAIN_MS = 60_000;

// A reload of the page's connection takes a second or two.
const GONE_S = 3;

let lookedAt = 0;
const charts = new Charts(marked);
const curve = new CurveChart(at("curve"));
const choose = (at_s) => {
  charts.show(at_s, setSpan);
  at("charts").scrollIntoView({ behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
};

async function look() {
  const [history, journal, decisions, curves, state] = await Promise.all(
    [`history?seconds=${charts.span}`, "journal?limit=200", "decisions?limit=60", "curves", "status"].map((path) => get(path)),
  );
  fill(history);
  store.entries = journal.events;
  store.decisions = decisions.decisions;
  store.curves = curves;
  take(state);
  lookedAt = performance.now();
}

function show() {
  document.body.classList.add("ready");
  lookForTurns();
  charts.build();
  curve.build();
  tellAll();
  tellSettings().catch((error) => say(at("differences"), error.message));
}

function tellAll() {
  tellState();
  tellMoment();
  tellDecisions();
  tellLists(choose);
}

function tellState() {
  const { state } = store;
  say(at("version"), state.version);
  tellHeads(state.policy);
  tellBackends();
}

/** Since when its role is favoured counts on from one state to the next, as all other ages do. */
const sentence = ({ sentence }) => sentence.replace(/newly favoured|favoured for [\d.,]+ \w+/, favoured());

function favoured() {
  const age_s = favouredFor();
  if (age_s === null) return "favoured since the start";
  return age_s < 1.5 ? "newly favoured" : `favoured for ${span(age_s)}`;
}

/** The first part large, the reasons behind it small: a long sentence stays readable and needs no more room. */
function tellSentence(sentence) {
  const [head, rest] = [at("now").children[0], at("now").children[1]];
  const end = sentence.search(/[:;,](?= )| \(/);
  say(head, end < 0 ? sentence : sentence.slice(0, end + (sentence[end] === " " ? 0 : 1)));
  say(rest, end < 0 ? "" : sentence.slice(end + (sentence[end] === " " ? 0 : 1)));
}

/** What changes with every sample. */
function tellMoment() {
  const end = length();
  const tokens = (role) => figure(store.columns[`${role}_tok_s`]?.at(-1));
  const last = (name) => store.columns[name]?.at(-1) ?? 0;
  const { state } = store;
  tellSentence(sentence(state));
  const facts = [
    [`${figure(last("speculative_in_flight"))} in flight`, `${tokens("speculative")} tok/s`],
    [`${figure(last("baseline_in_flight"))} in flight`, `${tokens("baseline")} tok/s`],
    [several(last("waiting"), "request"), ""],
    [state.pinned ?? state.policy, regime(state)],
  ];
  facts.forEach(([value, more], index) => {
    const [, told, beside] = at("figures").children[index].children;
    say(told, value);
    say(beside, more);
  });
  tellNotices();
  tellShare(end);
  tellVerdict();
}

/** Where the requests of the last minute went, and what changed last. */
function tellShare(end) {
  const [ours, theirs] = ["speculative", "baseline"].map((role) => total(`${role}_requests`, end - 60, end));
  const all = ours + theirs;
  // The baseline's lies behind, over the whole width; the speculative one's covers its share of it.
  at("share").children[0].style.transform = `scaleX(${all ? 1 : 0})`;
  at("share").children[1].style.transform = `scaleX(${all ? ours / all : 0})`;
  say(at("share-words"), all ? `Of ${several(all, "request")} in the last minute ${percent(ours / all)} went to speculative, ${percent(theirs / all)} to baseline.` : "No request in the last minute.");
  tellLast();
}

function tellLast() {
  const last = marked().filter(steers).at(-1);
  say(at("last"), last ? `Last change of regime, backends or settings, ${ago(now() - last.at_s)}: ${last.sentence}` : "");
}

function regime(state) {
  if (state.pinned) return "pinned by an operator";
  if (state.policy === "pinned") return "everything to one";
  if (!["threshold", "consolidate"].includes(state.policy)) return "each request by itself";
  return `${state.regime} ${favoured()}`;
}

let looking = false;

/** After the proxy's clock was set back every instant is another one. */
async function lookAgain() {
  if (looking) return;
  looking = true;
  try {
    await look();
    if (!document.hidden) tellAll();
  } catch {
    // The stream tells when the proxy is gone; else the next row asks again.
  }
  looking = false;
}

const hear = {
  sample(row) {
    if (setBack(row)) lookAgain();
    if (!add(row)) return;
    freshen();
    if (document.hidden) return;
    store.decided = total("speculative_requests", length() - 1, length()) + total("baseline_requests", length() - 1, length());
    tellRate();
    lookForTurns();
    charts.draw();
    curve.draw();
    tellMoment();
    tellBackends();
    tellLists(choose);
    tellAges();
  },
  journal(entry) {
    note(entry);
    say(at("said"), entry.sentence);
    if (entry.kind.startsWith("reload")) again();
  },
  decisions(told) {
    decide(told);
    if (!document.hidden) tellDecisions();
  },
  // It comes after the row and the entries of its turn: every part is told anew, so that none contradicts another.
  state(state) {
    take(state);
    if (document.hidden) return;
    tellState();
    tellMoment();
    tellLists(choose);
  },
};

/** Ask for what the stream does not tell, where it was not asked for lately and somebody sees it. */
function nowAndThen() {
  if (!document.hidden && performance.now() - lookedAt >= LOOK_AGAIN_MS) again();
}

function again() {
  lookedAt = performance.now();
  get("curves")
    .then((curves) => {
      const measured = ({ contexts, learned } = {}) => JSON.stringify([contexts, Boolean(learned)]);
      const changed = measured(curves) !== measured(store.curves ?? {});
      store.curves = curves;
      if (changed) curve.build();
    })
    .catch(() => {}); // the stream tells when the proxy is gone
  tellSettings().catch(() => {});
}

// ---------------------------------------------------------------- what a person chooses

async function setSpan(seconds) {
  charts.span = Number(seconds);
  const button = document.querySelector(`input[name=span][value="${charts.span}"]`);
  if (button) button.checked = true;
  try {
    fill(await get(`history?seconds=${charts.span}`));
    lookForTurns();
    charts.draw();
  } catch {
    charts.draw();
  }
}

const THEMES = ["auto", "light", "dark"];

function setTheme(theme) {
  globalThis.wear(theme);
  say(at("theme"), `Theme: ${theme}`);
  try {
    localStorage.setItem("theme", theme);
  } catch {
    // It holds for this view then.
  }
  if (length()) {
    charts.build();
    curve.build();
  }
}

for (const radio of document.querySelectorAll("input[name=span]")) radio.addEventListener("change", () => setSpan(radio.value));
at("theme").addEventListener("click", () => {
  setTheme(THEMES[(THEMES.indexOf(document.documentElement.dataset.choice) + 1) % THEMES.length]);
});
say(at("theme"), `Theme: ${document.documentElement.dataset.choice}`);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => length() && (charts.build(), curve.build()));
document.addEventListener("visibilitychange", () => !document.hidden && length() && (charts.draw(), curve.draw(), tellAll(), nowAndThen()));

ROLES.forEach((role, index) => at("figures").children[index].firstElementChild.replaceChildren(named(role)));
beginActions(() => again());
beginBackends();
beginDecisions();
beginNotices();
beginSettings();
setInterval(nowAndThen, LOOK_AGAIN_MS / 12);
setInterval(() => {
  if (at("link").dataset.state === "live" || !length()) return;
  tellGone(silence() >= GONE_S);
  if (store.gone) unknownStanding();
  tellAges();
  tellLast();
}, 1000);
follow({
  look,
  show,
  hear,
  link(state, words) {
    at("link").dataset.state = state;
    say(at("link"), words);
    if (state === "live" && store.gone) tellGone(false);
    if (state === "broken") unknownStanding();
    else if (store.state) at("notices").dataset.key = "-";
  },
});

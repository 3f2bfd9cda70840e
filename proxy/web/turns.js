// Finds the moments that a person would point at: where the load rose or fell, the traffic turned to the other backend, or
// others than the policy began to choose it. A moment is told once nothing that comes later can change it, so that what was told stays told.

import { steps } from "./levels.js";
import { length, mean, store, total } from "./store.js";
import { capital, figure, percent, several } from "./words.js";

// Compared are so many samples before and after: shorter is noise, longer hides what came back soon.
const WINDOW = 6;
// Fewer requests than this tell no share.
const MIN_REQUESTS = 3;
// A share that moves by half, to most of the requests, is a turn; one that moves by less than this is none's matter.
const TURN = 0.5;
const MOST = 2 / 3;
const SHIFT = 0.3;
// What the journal tells so many seconds before a turn, or just after it, is why.
const WHY_S = 10;
const WHY_LATER_S = 3;
const WHYS = new Set(["circuit", "health", "eligible", "pin", "drain", "reload", "learning"]);
// That callers or a rule choose the backend is certain once so many requests in a row were sent so, in whole samples.
const CERTAIN = 8;
// A step of the load that tells of a turn tells of one so many seconds later.
const NEAR_S = 8;

/** Every turn in what is known, oldest first. */
export function turns() {
  const loads = steps(load())
    .filter(({ at }) => at + WINDOW <= length())
    .map(step);
  const wishes = choosing();
  const splits = largest(turned)
    .map((turn) => ({ ...turn, at_s: between(turn.at) }))
    .filter((turn) => !wishes.some(({ at }) => Math.abs(at - turn.at) <= WINDOW))
    .filter((turn) => !explained(turn.at_s, turn.role) && !loads.some((step) => step.role === turn.role && near(step, turn)));
  return [...loads, ...wishes, ...splits]
    .map(({ at_s, role, words }) => ({ at_s, kind: "turn", role, sentence: `${capital(words)}.`, seen: true }))
    .sort((one, two) => one.at_s - two.at_s);
}

const near = (step, turn) => turn.at_s >= step.at_s - 1 && turn.at_s <= step.at_s + NEAR_S;

/** What is in flight or waits, of each sample. */
function load() {
  const columns = ["speculative_in_flight", "baseline_in_flight", "waiting"].map((name) => store.columns[name] ?? []);
  return (store.columns.at_s ?? []).map((_, at) => columns.reduce((sum, column) => sum + (column[at] ?? 0), 0));
}

/** What came in the second before a sample came in its midst, but before whatever the journal says it led to. */
function between(at) {
  const [before, after] = [store.columns.at_s[at - 1], store.columns.at_s[at]];
  const led = store.entries.filter(({ kind, at_s }) => kind === "regime" && at_s > before && at_s <= after).map(({ at_s }) => at_s - 0.001);
  return Math.min((before + after) / 2, ...led);
}

/** A step of the load, with where its requests went if nothing else tells of that. */
function step({ at, from, to }) {
  const at_s = between(at);
  const waiting = mean("waiting", at, at + WINDOW) ?? 0;
  const wait = waiting >= 1 ? ` or waiting (${figure(waiting)} wait)` : "";
  const words = `the load ${to > from ? "rose" : "fell"} from ${figure(from)} to ${figure(to)} in flight${wait}`;
  const [turn, before, after] = [turned(at), share(at - WINDOW, at), share(at, at + WINDOW)];
  if (explained(at_s, turn?.role) || asked(at)) return { at_s, words };
  if (turn) return { at_s, role: turn.role, words: `${words}, and ${turn.words}` };
  if (!before || !after || Math.abs(after.ours - before.ours) < SHIFT) return { at_s, words };
  const split = `${percent(after.ours)} of ${several(after.all, "request")} in the ${WINDOW} s after went to speculative, ${percent(before.ours)} of ${figure(before.all)} before`;
  return { at_s, words: `${words}: ${split}` };
}

/** Whether the journal tells why the traffic turned: to a role, where one is meant. */
function explained(at_s, role) {
  return store.entries.some((entry) => {
    if (entry.at_s < at_s - WHY_S || entry.at_s > at_s + WHY_LATER_S) return false;
    return entry.kind === "regime" ? !role || entry.role === role : WHYS.has(entry.kind);
  });
}

/** Where a change is the largest of all within a window of it; of equal ones the first. */
function largest(change) {
  const end = length();
  const changes = Array.from({ length: end }, (_, at) => (at >= WINDOW && at <= end - WINDOW ? change(at) : null));
  const found = [];
  for (let at = 2 * WINDOW; at <= end - 2 * WINDOW; at += 1) {
    const mine = changes[at];
    if (!mine) continue;
    const beaten = changes.slice(at - WINDOW, at).some((other) => other && other.size >= mine.size);
    if (!beaten && !changes.slice(at + 1, at + WINDOW + 1).some((other) => other && other.size > mine.size)) found.push({ at, ...mine });
  }
  return found;
}

function turned(at) {
  const [before, after] = [share(at - WINDOW, at), share(at, at + WINDOW)];
  if (!before || !after) return null;
  const role = after.ours > before.ours ? "speculative" : "baseline";
  const of = ({ ours }) => (role === "speculative" ? ours : 1 - ours);
  const size = of(after) - of(before);
  if (size < TURN || of(after) < MOST) return null;
  const told = (each) => `${percent(of(each))} of ${figure(each.all)}`;
  const words = `the traffic turned to ${role}, ${told(before)} requests in the ${WINDOW} s before and ${told(after)} after`;
  return { role, size, words: [words, asked(at)].filter(Boolean).join(": ") };
}

/** Why requests went where they went, where most did not go by the policy. */
function asked(at) {
  const all = share(at, at + WINDOW)?.all ?? 0;
  const [callers, rules] = ["named", "ruled"].map((name) => total(name, at, at + WINDOW));
  if (2 * callers > all) return `the callers of ${figure(callers)} of them named their backend`;
  if (2 * rules > all) return `a rule of the configuration sent ${figure(rules)} of them`;
  return null;
}

/** When callers or a rule began to choose the backend of all requests, or ended, each told by the first that show it. */
function choosing() {
  const found = [];
  let [told, run] = ["policy", null];
  for (let at = 0; at < length(); at += 1) {
    const [ours, theirs, named, ruled] = ["speculative_requests", "baseline_requests", "named", "ruled"].map((name) => total(name, at, at + 1));
    const requests = ours + theirs;
    if (!requests) continue;
    const role = ours === requests ? "speculative" : ours ? "both" : "baseline";
    const who = named === requests ? `callers ${role}` : ruled === requests ? `rule ${role}` : named + ruled ? "" : "policy";
    if (who !== run?.who) run = { who, at, all: 0 };
    run.all += requests;
    if (!who || who === told || run.all < CERTAIN) continue;
    // What was so when the history begins did not begin then.
    if (run.at) found.push({ at: run.at, at_s: between(run.at), role: role === "both" ? undefined : role, words: chosen(run) });
    told = who;
  }
  return found;
}

function chosen({ who, all }) {
  const [by, role] = who.split(" ");
  if (by === "policy") return `requests go by the policy again: of ${figure(all)} in a row none was sent by its caller or by a rule`;
  if (by === "rule") return `a rule of the configuration sent ${figure(all)} requests in a row to ${role}`;
  return `the callers of ${figure(all)} requests in a row named their backend: ${role === "both" ? "they went to both" : `all went to ${role}`}`;
}

function share(from, to) {
  const [ours, theirs] = [total("speculative_requests", from, to), total("baseline_requests", from, to)];
  return ours + theirs < MIN_REQUESTS ? null : { ours: ours / (ours + theirs), all: ours + theirs };
}

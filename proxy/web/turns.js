// Finds the moments that a person would point at: where the load jumped, or the traffic turned to the other backend.

import { length, mean, store, total } from "./store.js";
import { capital, figure, percent } from "./words.js";

// Compared are so many samples before and after: shorter is noise, longer hides what came back soon.
const WINDOW = 10;
// Fewer requests than this tell no share.
const MIN_REQUESTS = 3;
// A share that moves by half is a turn; a total that doubles and grows by four sequences is a jump.
const TURN = 0.5;
const JUMP = 2;
const JUMP_SEQUENCES = 4;
// Of turns closer than this only the first is told: they are the same one.
const APART_S = 15;

/** Every turn in what is known, oldest first. */
export function turns() {
  const found = [];
  for (let at = WINDOW; at <= length() - WINDOW; at += 1) {
    const turn = look(at);
    if (!turn) continue;
    const last = found.at(-1);
    if (last && turn.at_s - last.at_s < APART_S) {
      if (turn.size > last.size) found[found.length - 1] = turn;
    } else found.push(turn);
  }
  return found;
}

function look(at) {
  const [split, load] = [turned(at), jumped(at)];
  if (!split && !load) return null;
  const at_s = store.columns.at_s[at];
  const size = Math.max(split?.size ?? 0, load?.size ?? 0);
  const words = [split?.words, load?.words].filter(Boolean).join(", as ");
  return { at_s, kind: "turn", role: split?.role, sentence: `${capital(words)}.`, size, seen: true };
}

function turned(at) {
  const [before, after] = [share(at - WINDOW, at), share(at, at + WINDOW)];
  if (before === null || after === null || Math.abs(after - before) < TURN) return null;
  const role = after > before ? "speculative" : "baseline";
  const [was, is] = role === "speculative" ? [before, after] : [1 - before, 1 - after];
  return { role, size: Math.abs(after - before) * 2, words: `The traffic turned to ${role}, ${percent(was)} before and ${percent(is)} after` };
}

function jumped(at) {
  const [before, after] = [inFlight(at - WINDOW, at), inFlight(at, at + WINDOW)];
  const [low, high] = [Math.min(before, after), Math.max(before, after)];
  if (high - low < JUMP_SEQUENCES || high < low * JUMP) return null;
  const verb = after > before ? "rose" : "fell";
  const size = Math.min(1, (high - low) / high);
  return { size, words: `the load ${verb} from ${figure(before)} to ${figure(after)} in flight` };
}

function share(from, to) {
  const [ours, theirs] = [total("speculative_requests", from, to), total("baseline_requests", from, to)];
  return ours + theirs < MIN_REQUESTS ? null : ours / (ours + theirs);
}

const inFlight = (from, to) =>
  (mean("speculative_in_flight", from, to) ?? 0) + (mean("baseline_in_flight", from, to) ?? 0);

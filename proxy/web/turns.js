// Finds the moments that a person would point at: where the load jumped, or the traffic turned to the other backend.
// A moment is told once nothing that comes later can change it, so that what was told stays told.

import { length, mean, store, total } from "./store.js";
import { capital, figure, percent } from "./words.js";

// Compared are so many samples before and after: shorter is noise, longer hides what came back soon.
const WINDOW = 6;
// Where a jump lies is told by so few samples on either side: more would blur steps that follow on each other.
const SHARP = 3;
// Fewer requests than this tell no share.
const MIN_REQUESTS = 3;
// A share that moves by half is a turn; a total that grows by half and by four sequences is a jump.
const TURN = 0.5;
const JUMP = 1.5;
const JUMP_SEQUENCES = 4;

/** Every turn in what is known, oldest first. */
export function turns() {
  const splits = largest(turned, WINDOW);
  const loads = largest(jumped, SHARP);
  const found = [...splits, ...loads.filter((load) => !splits.some((split) => near(split, load)))];
  return found
    .map((turn) => (turn.role ? { ...turn, load: loads.filter((load) => near(turn, load)).sort((one, two) => two.size - one.size)[0] } : turn))
    .map(({ at, role, words, load }) => ({
      at_s: store.columns.at_s[at],
      kind: "turn",
      role,
      sentence: `${capital([words, load?.words].filter(Boolean).join(", as "))}.`,
      seen: true,
    }))
    .sort((one, two) => one.at_s - two.at_s);
}

const near = (one, two) => Math.abs(one.at - two.at) <= WINDOW;

/** Where a change is the largest of all not `apart` from it; of equal ones the first. */
function largest(change, apart) {
  const end = length();
  const changes = Array.from({ length: end }, (_, at) => (at >= WINDOW && at <= end - WINDOW ? change(at) : null));
  const found = [];
  for (let at = WINDOW + apart; at <= end - WINDOW - apart; at += 1) {
    const mine = changes[at];
    if (!mine) continue;
    const beaten = changes.slice(at - apart, at).some((other) => other && other.size >= mine.size);
    if (!beaten && !changes.slice(at + 1, at + apart + 1).some((other) => other && other.size > mine.size)) found.push({ at, ...mine });
  }
  return found;
}

function turned(at) {
  const [before, after] = [share(at - WINDOW, at), share(at, at + WINDOW)];
  if (!before || !after || Math.abs(after.ours - before.ours) < TURN) return null;
  const role = after.ours > before.ours ? "speculative" : "baseline";
  const of = ({ ours, all }) => `${percent(role === "speculative" ? ours : 1 - ours)} of ${figure(all)}`;
  const size = Math.abs(after.ours - before.ours);
  return { role, size, words: `the traffic turned to ${role}, ${of(before)} requests in the ${WINDOW} s before and ${of(after)} after` };
}

function jumped(at) {
  const [before, after] = [load(at - WINDOW, at), load(at, at + WINDOW)];
  const [low, high] = [Math.min(before, after), Math.max(before, after)];
  if (high - low < JUMP_SEQUENCES || high < low * JUMP) return null;
  const waiting = mean("waiting", at, at + WINDOW) ?? 0;
  const words = `the load ${after > before ? "rose" : "fell"} from ${figure(before)} to ${figure(after)} in flight${waiting >= 1 ? ` or waiting (${figure(waiting)} wait)` : ""}`;
  return { size: Math.abs(load(at, at + SHARP) - load(at - SHARP, at)), words };
}

function share(from, to) {
  const [ours, theirs] = [total("speculative_requests", from, to), total("baseline_requests", from, to)];
  return ours + theirs < MIN_REQUESTS ? null : { ours: ours / (ours + theirs), all: ours + theirs };
}

const load = (from, to) => ["speculative_in_flight", "baseline_in_flight", "waiting"].reduce((sum, name) => sum + (mean(name, from, to) ?? 0), 0);

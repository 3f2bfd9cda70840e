// The levels of load that lasted, and when each began: what is in flight or waits, told by what it settled at.
// From the first sample on, so that each level begins where the last one ended. Where requests went is in turns.js.

// A level has lasted after so many samples. Where they are not all alike it is told by some more: answers that began on
// the level before end meanwhile.
const HOLD = 5;
const LONG = 8;
// A smaller level is flat only where all of them are alike: clients that each wait for their answer keep it, and chance
// hardly ever does. A larger one may waver by a little.
const SMALL = 8;
// More than this many sequences, and half as much again, are a jump; fewer only where they at least halve or double.
const JUMP = 1.5;
const JUMP_SEQUENCES = 4;
const DOUBLE = 2;
// A window is settled that spans no more than this share of its level, or one sequence.
const SPREAD = 0.3;
// A larger level is flat where a window spans no more than this.
const STEADY = 0.15;
// Counts of requests that come by chance spread by their root: steps of less than so many of it are told of steady load.
const CHANCE = 3;
// Load that stays away from its level for so many windows without settling is told all the same.
const UNSETTLED = 8;
// After so many samples near a level what it has drifted to is the level.
const DRIFT = 20;
// So much of the way from one level to the next is still the old one: it tells when the load began to move.
const STILL = 0.15;
const LEAST_STILL = 0.5;

/** Every step of `loads` from one level to another, oldest first: {at, from, to}; at `at` it is first seen to move. */
export function steps(loads) {
  const found = [];
  let level = loads.length < HOLD ? 0 : usual(loads, 0);
  let [near, away, since] = [0, 0, 0];
  for (let at = 1; at + HOLD <= loads.length; at += 1) {
    const next = usual(loads, at);
    if (!differs(level, next)) {
      [near, away] = [near + 1, 0];
      // From nothing to a single request and back is no step, but it is where the next one begins.
      if (Math.min(level, next) < 1 && settled(loads, at, next)) level = next;
      else if (near >= DRIFT) [level, near] = [middle(loads, at - DRIFT + 1, DRIFT), 0];
      continue;
    }
    away += 1;
    const alike = span(loads, at) === 0;
    if (!alike && at + LONG > loads.length) break; // what comes next decides
    const to = !alike && span(loads, at, LONG) <= Math.max(1, next * SPREAD) ? usual(loads, at, LONG) : next;
    const first = moved(loads, level, to, at, since);
    const lasting = settled(loads, at, next) || away >= UNSETTLED;
    const told = differs(level, to) && (chance(level, to) ? first >= HOLD && flat(loads, first - HOLD, level) && flat(loads, at, next) : lasting);
    if (!told && away < DRIFT) continue;
    if (told) found.push({ at: first, from: level, to });
    [level, near, away, since] = [told ? to : middle(loads, at - DRIFT + 1, DRIFT), 0, 0, at];
  }
  return found;
}

function differs(level, next) {
  const [low, high] = [Math.min(level, next), Math.max(level, next)];
  if (high - low >= JUMP_SEQUENCES) return high >= low * JUMP;
  return low >= 1 ? high >= low * DOUBLE : high >= DOUBLE;
}

function settled(loads, at, level) {
  return span(loads, at) <= Math.max(1, level * SPREAD);
}

function span(loads, at, count = HOLD) {
  const window = loads.slice(at, at + count);
  return Math.max(...window) - Math.min(...window);
}

/** Whether requests that come by chance make such a step now and then. */
const chance = (level, next) => Math.abs(next - level) < CHANCE * Math.sqrt(Math.max(level, next));

/** Whether load hardly moves: chance does not go from one such level to another. */
function flat(loads, at, level) {
  return span(loads, at) <= (level < SMALL ? 0 : Math.max(1, level * STEADY));
}

/** The first sample after the last one that was still on the old level. */
function moved(loads, level, to, at, since) {
  const least = Math.max(STILL * Math.abs(to - level), LEAST_STILL);
  const left = (load) => (load - level) * Math.sign(to - level) > least;
  let first = at;
  while (first < loads.length - 1 && !left(loads[first])) first += 1;
  while (first > since + 1 && left(loads[first - 1])) first -= 1;
  return first;
}

/** What most samples of a window have, else their middle. */
function usual(loads, at, count = HOLD) {
  const window = loads.slice(at, at + count);
  const most = window.find((load) => 2 * window.filter((other) => other === load).length > count);
  return most ?? middle(loads, at, count);
}

function middle(loads, at, count) {
  const window = loads.slice(at, at + count).sort((one, two) => one - two);
  return window[count >> 1];
}

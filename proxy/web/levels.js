// The levels of load that lasted, and when each began: what is in flight or waits, told by what it settled at.
// From the first sample on, so that each level begins where the last one ended. Where requests went is in turns.js.

// A level has lasted after so many samples; a small step is told only after more, since quiet traffic is full of them.
const HOLD = 5;
const HOLD_SMALL = 8;
// It is told by the last samples of its first few: answers that began on the level before end meanwhile.
const LAST = 3;
// More than this many sequences, and half as much again, are a jump; fewer only where they at least halve or double.
const JUMP = 1.5;
const JUMP_SEQUENCES = 4;
const DOUBLE = 2;
// A window is settled that spans no more than this share of its level, or one sequence.
const SPREAD = 0.3;
// One that spans no more than this is steady.
const STEADY = 0.15;
// Counts of requests that come by chance spread by their root: steps of less than so many of it are told of steady load.
const CHANCE = 3;
// Load that stays away from its level for so many windows without settling is told all the same.
const UNSETTLED = 8;
// After so many samples near a level what it has drifted to is the level.
const DRIFT = 20;
// So much of the way from one level to the next is still the old one: it tells when the load began to move.
const STILL = 0.1;
const LEAST_STILL = 0.5;

/** Every step of `loads` from one level to another, oldest first: {at, from, to}; at `at` it is first seen to move. */
export function steps(loads) {
  const found = [];
  let level = loads.length < HOLD ? 0 : middle(loads, 0, HOLD);
  let [near, away, since] = [0, 0, 0];
  for (let at = 1; at + HOLD <= loads.length; at += 1) {
    const next = middle(loads, at, HOLD);
    if (!differs(level, next)) {
      [near, away] = [near + 1, 0];
      // From nothing to a single request and back is no step, but it is where the next one begins.
      if (Math.min(level, next) < 1 && settled(loads, at, next, HOLD)) level = next;
      else if (near >= DRIFT) [level, near] = [middle(loads, at - DRIFT + 1, DRIFT), 0];
      continue;
    }
    away += 1;
    if (at + HOLD_SMALL > loads.length) break; // what comes next decides
    const lasting = settled(loads, at, next, HOLD);
    const to = lasting ? ending(loads, at, next) : next;
    const first = moved(loads, level, to, at, since);
    const told = differs(level, to) && (chance(level, to) ? steady(loads, level, first, to, at) : lasting || away >= UNSETTLED);
    if (!told && away < DRIFT) continue;
    if (told) found.push({ at: first, from: level, to });
    [level, near, away, since] = [told ? to : middle(loads, at - DRIFT + 1, DRIFT), 0, 0, at];
  }
  return found;
}

function ending(loads, at, level) {
  const held = settled(loads, at, level, HOLD_SMALL) ? HOLD_SMALL : HOLD;
  return middle(loads, at + held - LAST, LAST);
}

function differs(level, next) {
  const [low, high] = [Math.min(level, next), Math.max(level, next)];
  if (high - low >= JUMP_SEQUENCES) return high >= low * JUMP;
  return low >= 1 ? high >= low * DOUBLE : high >= DOUBLE;
}

function settled(loads, at, level, hold, spread = SPREAD) {
  const window = loads.slice(at, at + hold);
  return Math.max(...window) - Math.min(...window) <= Math.max(1, level * spread);
}

/** Whether requests that come by chance make such a step now and then. */
const chance = (level, next) => Math.abs(next - level) < CHANCE * Math.sqrt(Math.max(level, next));

/** Whether load that hardly moved went to another one that hardly moves: chance does not do that. */
function steady(loads, level, first, next, at) {
  const hold = Math.abs(next - level) < JUMP_SEQUENCES ? HOLD_SMALL : HOLD;
  return first >= hold && settled(loads, first - hold, level, hold, STEADY) && settled(loads, at, next, hold, STEADY);
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

function middle(loads, at, count) {
  const window = loads.slice(at, at + count).sort((one, two) => one - two);
  return window[count >> 1];
}

// Numbers, times and reasons as people read them. Pure: nothing here knows the page.

const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const TENTHS = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

export const ROLES = ["speculative", "baseline"];
export const other = (role) => (role === "speculative" ? "baseline" : "speculative");

/** The time of day of unix seconds. */
export const clock = (at_s) => CLOCK.format(new Date(at_s * 1000));

/** How long ago, in words. */
export function ago(seconds) {
  if (seconds < 1.5) return "just now";
  return `${span(seconds)} ago`;
}

/** A length of time in the unit that fits. */
export function span(seconds) {
  if (seconds < 100) return `${WHOLE.format(seconds)} s`;
  if (seconds < 5400) return `${WHOLE.format(seconds / 60)} min`;
  if (seconds < 172800) return `${TENTHS.format(seconds / 3600)} h`;
  return `${WHOLE.format(seconds / 86400)} days`;
}

/** A short duration: milliseconds are written as such, since people read them so. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (!Number.isFinite(seconds)) return "∞";
  if (seconds === 0) return "0 s";
  if (Math.abs(seconds) < 0.0995) return `${(seconds * 1000).toPrecision(2)} ms`;
  if (Math.abs(seconds) < 9.995) return `${seconds.toFixed(2)} s`;
  return `${(Math.abs(seconds) < 99.95 ? TENTHS : WHOLE).format(seconds)} s`;
}

/** A count or a speed; small ones with a tenth. */
export function figure(value) {
  if (value === null || value === undefined) return "–";
  return Math.abs(value) < 100 ? TENTHS.format(value) : WHOLE.format(value);
}

export const percent = (share) => `${WHOLE.format(share * 100)} %`;

/** One or many of a thing. */
export const several = (count, thing) => `${figure(count)} ${thing}${count === 1 ? "" : "s"}`;

export const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

const REASONS = {
  pinned: () => "the policy is pinned to it",
  operator_pin: () => "an operator pinned everything to it",
  header: () => "the client asked for it",
  rule: () => "a rule of the configuration sends such requests there",
  regime: (because) =>
    because.policy === "consolidate"
      ? "it is the favoured one"
      : `favoured: ${figure(because.smoothed)} in flight smoothed, enter_at ${because.enter_at}, leave_at ${because.leave_at}`,
  state: () => "only it has what the request names",
  affinity: () => "most of the prompt is cached there",
  cheaper: () => "it delays all requests least there",
  room: (because) => `${because.speculative_in_flight} in flight there, below leave_at ${because.leave_at}`,
  overflow: (because) =>
    because.policy === "consolidate"
      ? "the favoured one fails"
      : `speculative had ${because.speculative_in_flight} of leave_at ${because.leave_at}`,
  only_eligible: () => "the other takes no requests",
  other_full: () => "the other is full",
  silent: () => "the other gives no sign of life",
  ramping: () => "the other has just come back",
  failover: () => "the other failed it before its answer began",
  probe: () => "to see how fast it is now",
  all_down: () => "neither takes requests: tried all the same",
  full: () => "no room anywhere",
};

/** Why a request went where it went, in a few words. */
export function why(decision) {
  const told = REASONS[decision.reason];
  return told ? told(decision.because) : decision.reason;
}

const OUT = { draining: "drained then", down: "down then", "circuit open": "circuit open then", silent: "silent then" };

/** The cost of a choice that could have been taken; what kept a backend from it. Under policy consolidate it is the length of the answer if that backend served everything. */
export function cost(because, role) {
  if (OUT[because[`${role}_out`]]) return OUT[because[`${role}_out`]];
  if (because.speculative_cost_s === null && because.baseline_cost_s === null) return "–";
  const told = because[`${role}_cost_s`];
  if (typeof told === "number") return duration(told);
  return because.policy === "consolidate" ? "without end: it gives less than is asked for" : "beyond what was measured";
}

/** How much dearer or cheaper the choice that was not taken would have been; empty where that is not known. */
export function difference(decision) {
  if (OUT[decision.because[`${other(decision.role)}_out`]]) return "";
  const chosen = decision.because[`${decision.role}_cost_s`];
  const rest = decision.because[`${other(decision.role)}_cost_s`];
  if (typeof chosen !== "number" || typeof rest !== "number" || chosen <= 0) return "";
  const more = rest / chosen - 1;
  if (Math.abs(more) < 0.005) return "the same";
  if (more > 10) return `${figure(rest / chosen)} times as much`;
  return `${percent(Math.abs(more))} ${more > 0 ? "more" : "less"}`;
}

/** A key's value as the file would have it. */
export function plain(value) {
  if (value === null || value === undefined) return "not set";
  if (typeof value === "object") return JSON.stringify(value);
  return String(value);
}

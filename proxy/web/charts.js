// The charts over time: which there are, what they show under which policy, and the moment that is read in all of them.

import { at, make, say } from "./dom.js";
import { TimeChart } from "./timechart.js";
import { latest, length, mean, nearest, now, since, store, total } from "./store.js";
import { ago, clock, duration, figure, percent, several } from "./words.js";

// Requests a second are counted over so many samples: single seconds jump too much to be read.
const SMOOTH = 5;
// Samples without a request after which the strip is empty.
const IDLE = 10;
const REGIMES = ["threshold", "consolidate"];
const bounded = (state) => state?.policy === "threshold" || state?.policy === "overflow";
const column = (name) => (columns) => columns[name] ?? [];

const pair = (name, extra = {}) => [
  { label: "speculative", style: "speculative", values: column(`speculative_${name}`), ...extra },
  { label: "baseline", style: "baseline", values: column(`baseline_${name}`), ...extra },
];

const rate = (name) => (columns) => {
  const counts = columns[name] ?? [];
  let sum = 0;
  return counts.map((count, index) => {
    sum += count - (index >= SMOOTH ? counts[index - SMOOTH] : 0);
    return sum / Math.min(index + 1, SMOOTH) / store.step_s;
  });
};

// What is mostly nothing is drawn only where it is something.
const rare = (values) => (columns) => (typeof values === "string" ? column(values) : values)(columns).map((value) => value || null);
const count = (value) => figure(value ?? 0);

const DEFINITIONS = [
  {
    title: "In flight, sequences",
    tall: true,
    least: 4,
    unit: figure,
    axis: figure,
    lines: [
      ...pair("in_flight", { stepped: true }),
      { label: "smoothed total", style: "smoothed", values: column("smoothed"), shown: (state) => state?.policy === "threshold" },
      { label: "leave_at", style: "bound", values: column("leave_at"), shown: bounded },
      { label: "enter_at", style: "bound", values: column("enter_at"), shown: (state) => state?.policy === "threshold" },
      { label: "waiting", style: "quiet", values: rare("waiting"), unit: count, gaps: true },
    ],
    strip: favoured,
  },
  {
    title: "Requests a second",
    least: 1,
    unit: figure,
    axis: figure,
    lines: [
      { label: "speculative", style: "speculative", values: rate("speculative_requests") },
      { label: "baseline", style: "baseline", values: rate("baseline_requests") },
      { label: "failed", style: "alarm", values: rare(rate("failures")), unit: count, gaps: true },
      { label: "refused", style: "quiet", values: rare(rate("refused")), unit: count, gaps: true },
    ],
  },
  { title: "Output tokens a second", least: 10, unit: figure, axis: figure, lines: pair("tok_s") },
  { title: "Time to first token", least: 0.01, unit: duration, axis: duration, robust: true, lines: pair("ttft_s", { points: true }) },
  { title: "Time for each further token", least: 0.001, unit: duration, axis: duration, robust: true, lines: pair("tpot_s", { points: true }) },
];

/** The favoured role of each sample: the regime, or where most requests went for policies that have none. */
export function favoured(columns) {
  if (REGIMES.includes(store.state?.policy) && !store.state?.pinned) return columns.regime ?? [];
  // Where nobody asks nobody is favoured: what was so before is not carried on for long.
  let [last, since] = [null, 0];
  return (columns.speculative_requests ?? []).map((ours, index) => {
    const theirs = columns.baseline_requests[index];
    if (ours !== theirs) [last, since] = [ours > theirs ? "speculative" : "baseline", index];
    return index - since < IDLE ? last : null;
  });
}

/** All charts. `entries()` gives what is marked on the time axis. */
export class Charts {
  constructor(entries) {
    this.span = 900;
    this.kept = null;
    this.entries = entries;
    this.pointing = null;
    this.all = DEFINITIONS.map((definition) => new TimeChart(definition, this));
    this.hint = at("instant").textContent;
    at("chart-grid").append(...this.all.map((chart) => chart.element), this.#legend());
  }

  build() {
    for (const chart of this.all) chart.build();
  }

  draw() {
    for (const chart of this.all) chart.draw();
    this.#read();
  }

  /** Where the cursor is; null: nowhere. */
  pointed(at_s) {
    this.pointing = at_s;
    this.#read();
  }

  /** Keep a moment, or none. */
  keep(at_s) {
    this.kept = at_s === this.kept ? null : at_s;
    for (const chart of this.all) {
      chart.tell(this.kept);
      chart.u?.redraw(false);
    }
    this.#read();
  }

  /** Show a moment that may lie before the span in view; awaits nothing, `spanTo` widens it. */
  show(at_s, spanTo) {
    const back = latest() - at_s;
    if (back > this.span - 20) spanTo(back > 880 ? 1800 : 900);
    if (this.kept !== at_s) this.keep(at_s);
  }

  #read() {
    const at_s = this.pointing ?? this.kept;
    say(at("instant"), at_s === null || !length() ? this.hint : at_s < since(this.span) ? before(at_s) : moment(at_s));
    at("instant").classList.toggle("quiet", at_s === null);
  }

  #legend() {
    return make("p", {
      class: "quiet key",
      text:
        "The strip below the first chart: solid where speculative is favoured, hatched where baseline is (without a regime, where most requests went). " +
        "Letters on top are journal entries: R regime, H health, C circuit, E eligible, X requests refused or failed, P pin, D drain, F configuration, N engine, L learning, S start and stop; " +
        "T, a turn of the traffic or a jump of the load, is seen in the history and in no journal.",
    });
  }
}

const before = (at_s) => `${clock(at_s)}, ${ago(now() - at_s)}, lies before the chart: its history begins at ${clock(store.columns.at_s[0])}.`;

/** One moment in words. */
function moment(at_s) {
  const index = nearest(at_s);
  const columns = store.columns;
  const value = (name) => columns[name][index];
  const [ours, theirs] = [total("speculative_requests", index - 9, index + 1), total("baseline_requests", index - 9, index + 1)];
  const split = ours + theirs ? `, ${percent(ours / (ours + theirs))} of ${several(ours + theirs, "request")} in ten seconds to speculative` : ", no requests in ten seconds";
  const speeds = ["speculative", "baseline"].map((role) => `${role} ${figure(mean(`${role}_tok_s`, index - 4, index + 1))}`);
  const waiting = value("waiting") ? `, ${several(value("waiting"), "request")} waiting` : "";
  return (
    `${clock(value("at_s"))}, ${ago(now() - value("at_s"))}: ${value("speculative_in_flight")} in flight on speculative, ` +
    `${value("baseline_in_flight")} on baseline${waiting}${split}; output tok/s ${speeds.join(", ")}.`
  );
}

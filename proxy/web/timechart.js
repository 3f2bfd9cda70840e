// One chart over time: lines of columns, a legend with shapes that tells the values, the same moment under every cursor.
// Which charts there are is in charts.js. uPlot, a global of vendor/uplot.min.js, draws the lines.

import { make, mark, say } from "./dom.js";
import { axisOf, colours, kept, levels, marks, strip } from "./paint.js";
import { latest, length, nearest, since, store } from "./store.js";

const DASHES = { speculative: [], baseline: [7, 4], bound: [12, 3, 2, 3], smoothed: [2, 3], quiet: [1, 3] };
// Means come with answers that end: a few seconds without any are no gap.
const GAP_S = 15;
// Samples with nothing in flight that make a gap: between two short requests there may be one.
const IDLE = 3;
// Of so many values this share is usual, and what is so many times above is far.
const MIN_VALUES = 20;
const USUAL = 0.97;
const FAR = 2;
const sync = uPlot.sync("moment");

/**
 * `definition`: title, unit (a function that words a value), and lines, each {label, style, values(columns), points,
 * shown(state)}; `robust` lets values far above nearly all others leave the chart; `strip(columns)` gives a role a sample; `tall` for the first. `board` holds the span in seconds, the
 * kept moment, the entries that are marked, and `pointed(at_s)`, which is told where the cursor is.
 */
export class TimeChart {
  constructor(definition, board) {
    this.definition = definition;
    this.board = board;
    this.values = definition.lines.map((line) => {
      const value = make("b", { text: "–" });
      line.item = make("li", {}, mark(line.style), make("span", { text: line.label }), value);
      return value;
    });
    this.above = definition.robust ? make("li", { class: "quiet" }) : null;
    this.plot = make("div", { class: "plot", tabindex: "0", role: "img", "aria-label": definition.title });
    this.element = make(
      "figure",
      { class: definition.tall ? "chart tall" : "chart" },
      make("figcaption", {}, make("h3", { text: definition.title }), make("ul", {}, ...definition.lines.map((line) => line.item), this.above)),
      this.plot,
    );
    this.plot.addEventListener("keydown", (event) => this.#key(event));
    this.plot.addEventListener("click", () => this.#keep());
    new ResizeObserver(() => this.#fit()).observe(this.plot);
  }

  /** Draw anew with other colours. */
  build() {
    this.u?.destroy();
    this.ink = colours();
    this.font = axisOf(this.ink).font;
    this.u = new uPlot(this.#options(), this.#data(), this.plot);
    this.draw();
  }

  /** Take in what has come. */
  draw() {
    if (!this.u) return;
    this.definition.lines.forEach((line, at) => {
      const shown = line.shown ? line.shown(store.state) : true;
      line.item.hidden = !shown;
      if (this.u.series[at + 1].show !== shown) this.u.setSeries(at + 1, { show: shown });
    });
    this.u.setData(this.#data());
    if (this.at_s === undefined) this.tell(null);
  }

  /** Tell the values of a moment, or of now. */
  tell(at_s) {
    const index = at_s === null ? length() - 1 : nearest(at_s);
    const words = this.definition.lines.map((line, at) => {
      const value = index < 0 ? null : (this.series[at][index] ?? (line.points ? this.#before(at, index) : null));
      const told = (line.unit ?? this.definition.unit)(value);
      say(this.values[at], told);
      return line.item.hidden ? null : `${line.label} ${told}`;
    });
    const when = at_s === null ? "now" : "at the moment that is read";
    this.plot.setAttribute("aria-label", `${this.definition.title}, ${when}: ${words.filter(Boolean).join(", ")}`);
  }

  // Means are not known in every second: the latest one before, within ten.
  #before(at, index) {
    for (let back = index - 1; back >= Math.max(0, index - 10); back -= 1) {
      if (this.series[at][back] !== null) return this.series[at][back];
    }
    return null;
  }

  #data() {
    const columns = store.columns;
    this.series = this.definition.lines.map((line) => line.values(columns));
    return [columns.at_s ?? [], ...this.series];
  }

  // A single late value would flatten all others: what is far above nearly all of them leaves the chart, and is told.
  #top(most) {
    const { definition, board, above } = this;
    if (!above) return most;
    const from = nearest(since(board.span));
    const values = this.series.flatMap((values) => values.slice(from)).filter((value) => value !== null);
    values.sort((one, two) => one - two);
    const usual = values[Math.floor(values.length * USUAL)] ?? most;
    const cut = values.length >= MIN_VALUES && most > usual * FAR;
    say(above, cut ? `some above, up to ${definition.unit(most)}` : "");
    return cut ? usual * FAR : most;
  }

  #options() {
    const { ink, definition, board } = this;
    const axis = axisOf(ink);
    return {
      ...this.#size(),
      legend: { show: false },
      padding: [10, axis.between / 2, 0, 0],
      cursor: { sync: { key: sync.key, setSeries: false }, drag: { setScale: false, x: false, y: false }, points: { size: 7 }, y: false },
      scales: {
        x: { time: true, range: () => [since(board.span), latest()] },
        y: { range: (_, __, most) => [0, Math.max(definition.least, this.#top(most ?? 0) * 1.12)] },
      },
      axes: [
        { ...axis, space: axis.between, size: axis.height, values: (_, splits) => splits.map((at_s) => time(at_s)) },
        { ...axis, values: (_, splits) => splits.map((value) => definition.axis(value)) },
      ],
      series: [
        {},
        ...definition.lines.map((line) => ({
          label: line.label,
          stroke: ink[line.style] ?? ink.ink,
          width: line.style === "speculative" || line.style === "baseline" ? 2 : 1.5,
          dash: DASHES[line.style],
          ...(line.gaps ? {} : { gaps: wide }),
          points: { show: Boolean(line.points || line.gaps), size: 4 },
          paths: line.stepped ? uPlot.paths.stepped({ align: 1 }) : undefined,
        })),
      ],
      hooks: {
        drawAxes: [(u) => this.#levels(u)],
        draw: [(u) => this.#paint(u)],
        setCursor: [(u) => this.#pointed(u)],
      },
    };
  }

  #paint(u) {
    const { board, ink, definition } = this;
    if (definition.strip) strip(u, store.columns.at_s ?? [], definition.strip(store.columns), ink);
    marks(u, board.entries(), ink, Boolean(definition.tall));
    if (board.kept !== null) kept(u, board.kept, ink);
  }

  /** The names of levels, below the lines: a name hides none. */
  #levels(u) {
    const bounds = this.definition.lines.map((line, at) => ({ line, shown: u.series[at + 1].show, name: line.label, value: this.series[at].at(-1) }));
    levels(u, bounds.filter(({ line, shown, value }) => line.style === "bound" && shown && value !== null && value !== undefined), this.ink);
  }

  #pointed(u) {
    const { left } = u.cursor;
    const at_s = left === null || left === undefined || left < 0 ? undefined : u.posToVal(left, "x");
    if (at_s === this.at_s) return;
    this.at_s = at_s;
    this.tell(at_s ?? this.board.kept);
    if (u.cursor.event || this.byKey) this.board.pointed(at_s ?? null);
  }

  #key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -30, PageDown: 30 }[event.key];
    const count = length();
    if (event.key === "Enter" || event.key === " ") this.#keep();
    else if (event.key === "Escape") this.board.keep(null);
    else if (step !== undefined || event.key === "Home" || event.key === "End") {
      const from = nearest(this.at_s ?? latest());
      const first = nearest(since(this.board.span));
      const moved = event.key === "Home" ? first : event.key === "End" ? count - 1 : from + step * (event.shiftKey ? 10 : 1);
      this.#move(Math.min(count - 1, Math.max(first, moved)));
    } else return;
    event.preventDefault();
  }

  #move(index) {
    const at_s = store.columns.at_s?.[index];
    if (at_s === undefined) return;
    this.byKey = true;
    this.u.setCursor({ left: this.u.valToPos(at_s, "x"), top: 10 });
    this.board.pointed(at_s);
    this.byKey = false;
  }

  #keep() {
    if (this.at_s !== undefined) this.board.keep(this.at_s);
  }

  #size() {
    return { width: Math.max(200, this.plot.clientWidth), height: Math.max(120, this.plot.clientHeight) };
  }

  #fit() {
    if (!this.u || !this.plot.clientWidth) return;
    const size = this.#size();
    if (axisOf(this.ink).font !== this.font) this.build();
    else if (size.width !== this.u.width || size.height !== this.u.height) this.u.setSize(size);
  }
}

// A line goes on over what is not known for some seconds, and breaks over more, and where nothing was asked for.
export function wide(u, series, _, __, gaps) {
  const most = u.valToPos(GAP_S, "x", true) - u.valToPos(0, "x", true);
  const counts = store.columns[`${u.series[series].label}_in_flight`] ?? [];
  const idle = (from, to) => counts.slice(u.posToIdx(from, true), u.posToIdx(to, true)).filter((count) => count === 0).length;
  return gaps.filter(([from, to]) => to - from > most || idle(from, to) >= IDLE);
}

function time(at_s) {
  const date = new Date(at_s * 1000);
  const two = (value) => String(value).padStart(2, "0");
  const minutes = `${two(date.getHours())}:${two(date.getMinutes())}`;
  return date.getSeconds() === 0 ? minutes : `${minutes}:${two(date.getSeconds())}`;
}

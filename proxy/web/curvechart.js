// Speed by load: the measured curves with their intervals, what was learned of them, the crossover band, what was seen
// lately, and where each backend works now. Without curves only what was seen is there.

import { make, mark, say } from "./dom.js";
import { axisOf, colours, hatched, shape } from "./paint.js";
import { configFile, length, mean, store } from "./store.js";
import { figure, ROLES } from "./words.js";

const SEEN = 900; // samples that are shown as dots: a quarter of an hour
const NOW = 5; // samples that make an operating point
const APART = 0.01; // a learned curve that nowhere differs by more is the measured one to any eye
const STEPS = 12; // a curve beyond its last point is drawn in so many pieces
const POWERS = Array.from({ length: 16 }, (_, power) => 2 ** power);

/** Output tok/s beyond the last point, as routing/curves.py carries them on: the time of a step goes on straight through
 * the last two points, and never falls. One point alone tells no slope. */
export function carried(points, in_flight) {
  if (points.length < 2) return points[0].tok_s;
  let longest = 0;
  const steps = points.map((point) => (longest = Math.max(longest, point.in_flight / point.tok_s)));
  const [[one, two], [first, second]] = [points.slice(-2), steps.slice(-2)];
  const slope = Math.max(0, second - first) / (two.in_flight - one.in_flight);
  return in_flight / (second + slope * (in_flight - two.in_flight));
}

export class CurveChart {
  constructor(element) {
    this.context = 0;
    this.choice = make("select", { "aria-label": "Length of context", onchange: () => this.#choose() });
    this.values = Object.fromEntries(ROLES.map((role) => [role, make("b", { text: "–" })]));
    const items = ROLES.map((role) => make("li", {}, mark(role), make("span", { text: `${role}, last ${NOW} s` }), this.values[role]));
    this.taught = Object.fromEntries(ROLES.map((role) => [role, make("li", {}, mark(`${role} learned`), make("span", { text: `${role}, learned` }))]));
    this.text = make("p", { class: "quiet", text: "" });
    this.plot = make("div", { class: "plot", role: "img", "aria-label": "Speed by load" });
    element.append(
      make("figure", { class: "chart tall" }, make("figcaption", {}, make("h3", { text: "Output tok/s by sequences in flight" }), this.choice, make("ul", {}, ...items, ...Object.values(this.taught))), this.plot),
      this.text,
    );
    new ResizeObserver(() => this.#fit()).observe(this.plot);
  }

  build() {
    const contexts = store.curves?.contexts ?? [];
    this.choice.replaceChildren(...contexts.map((each, at) => make("option", { value: at, text: `${figure(each.context_tokens)} tokens of context` })));
    this.choice.hidden = contexts.length < 2;
    this.choice.value = String(this.context);
    this.ink = colours();
    this.font = axisOf(this.ink).font;
    this.u?.destroy();
    this.u = new uPlot(this.#options(), this.#data(), this.plot);
    for (const role of ROLES) this.taught[role].hidden = !store.curves?.learned; // else it keeps its room
    say(this.text, this.#words(contexts));
    this.draw();
  }

  draw() {
    if (!this.u) return;
    this.points = Object.fromEntries(ROLES.map((role) => [role, this.#now(role)]));
    for (const role of ROLES) {
      const point = this.points[role];
      say(this.values[role], point ? `${figure(point.tok_s)} tok/s at ${figure(point.in_flight)}` : "idle");
    }
    for (const role of ROLES) this.taught[role].classList.toggle("absent", !this.#learned(role).length);
    const told = ROLES.map((role) => `${role} ${this.values[role].textContent}`).join(", ");
    this.plot.setAttribute("aria-label", `Output tok/s by sequences in flight, now: ${told}. ${this.text.textContent}`);
    this.u.setData(this.#data());
  }

  #choose() {
    this.context = Number(this.choice.value);
    this.build();
  }

  get #measured() {
    return store.curves?.contexts?.[this.context] ?? null;
  }

  /** The learned points of a role; none where live traffic agrees with what was measured. */
  #learned(role) {
    const tokens = this.#measured?.context_tokens;
    const points = store.curves?.learned?.contexts?.find((each) => each.context_tokens === tokens)?.[role] ?? [];
    const measured = new Map(this.#measured?.[role].map((point) => [point.in_flight, point.tok_s]));
    const apart = ({ in_flight, tok_s }) => Math.abs(tok_s / (measured.get(in_flight) ?? tok_s) - 1) > APART;
    return points.some(apart) ? points : [];
  }

  #now(role) {
    const end = length();
    const in_flight = mean(`${role}_in_flight`, end - NOW, end);
    const tok_s = mean(`${role}_tok_s`, end - NOW, end);
    return in_flight && tok_s !== null ? { in_flight, tok_s } : null;
  }

  #words(contexts) {
    if (!contexts.length) {
      return (
        "Nothing was measured here: small shapes are what the last quarter of an hour has shown. " +
        `scripts/calibrate ${configFile()} measures both backends and says where they cross; name its curves.yaml as routing.curves_file.`
      );
    }
    const band = this.#measured?.band;
    const about = band ? `The band from ${figure(band.enter_at)} to ${figure(band.leave_at)} in flight is where the two hardly differ. ` : "";
    const taught = store.curves.learned ? "Dotted ones appear where live traffic has shown other speeds since: routing goes by them. " : "";
    const intervals = ROLES.some((role) => (this.#measured?.[role] ?? []).some((point) => point.low !== null));
    const dated = store.curves.measured_at.slice(0, 16).replace("T", " ");
    return `Lines are the speeds in routing.curves_file (${dated})${intervals ? ", whiskers their intervals" : ""}; the thin dotted ends carry on what was measured, as routing does. ${taught}Small shapes are what the last quarter of an hour has shown, large ones now. ${about}`;
  }

  #data() {
    const points = [...ROLES.map((role) => this.#measured?.[role] ?? []), ...ROLES.map((role) => this.#learned(role))];
    const curves = points.map((each) => new Map(each.map(({ in_flight, tok_s }) => [in_flight, tok_s])));
    const xs = [...new Set(curves.flatMap((curve) => [...curve.keys()]))].sort((one, two) => one - two);
    if (!xs.length) return [[1, 64], ...curves.map(() => [null, null])];
    return [xs, ...curves.map((curve) => xs.map((x) => curve.get(x) ?? null))];
  }

  #range() {
    const [xs] = this.#data();
    const seen = ROLES.flatMap((role) => (store.columns[`${role}_in_flight`] ?? []).slice(-SEEN));
    return [0.7, Math.max(xs.at(-1), 8, ...seen) * 1.2];
  }

  #most() {
    const measured = ROLES.flatMap((role) => (this.#measured?.[role] ?? []).map((point) => point.high ?? point.tok_s));
    const taught = ROLES.flatMap((role) => this.#learned(role).map((point) => point.tok_s));
    const seen = ROLES.flatMap((role) => (store.columns[`${role}_tok_s`] ?? []).slice(-SEEN).map((value) => value ?? 0));
    return Math.max(10, ...measured, ...taught, ...seen) * 1.08;
  }

  #options() {
    const { ink } = this;
    const axis = axisOf(ink);
    const line = (role, dash) => ({ label: role, stroke: ink[role], width: 2, dash, spanGaps: true, points: { show: false } });
    return {
      ...this.#size(),
      legend: { show: false },
      padding: [10, 14, 0, 0],
      cursor: { show: false },
      scales: { x: { time: false, distr: 3, log: 2, range: () => this.#range() }, y: { range: () => [0, this.#most()] } },
      axes: [
        { ...axis, size: axis.height, splits: (_, __, least, most) => POWERS.filter((value) => value >= least && value <= most), filter: (_, splits) => splits, values: (_, splits) => splits.map(figure) },
        { ...axis, values: (_, splits) => splits.map(figure) },
      ],
      series: [{}, line("speculative", []), line("baseline", [7, 4]), line("speculative", [2, 4]), line("baseline", [7, 4, 2, 4])],
      hooks: { drawClear: [(u) => this.#behind(u)], draw: [(u) => this.#before(u)] },
    };
  }

  /** The crossover band, behind the lines. */
  #behind(u) {
    const band = this.#measured?.band;
    if (!band) return;
    const { ctx: context, bbox } = u;
    const x = (value) => Math.max(bbox.left, Math.min(bbox.left + bbox.width, u.valToPos(value, "x", true)));
    const [left, right] = [x(band.enter_at), x(band.leave_at)];
    context.save();
    context.globalAlpha = 0.45;
    context.fillStyle = hatched(context, this.ink.line, false);
    context.fillRect(left, bbox.top, right - left, bbox.height);
    context.globalAlpha = 1;
    context.fillStyle = this.ink.ink;
    context.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
    context.textAlign = "center";
    // Beside the numbers of the axis, however near to the edge the band is.
    const half = context.measureText("crossover").width / 2;
    const middle = Math.min(Math.max((left + right) / 2, bbox.left + half), bbox.left + bbox.width - half);
    context.fillText("crossover", middle, bbox.top + 13 * devicePixelRatio);
    context.restore();
  }

  /** Intervals, what was seen, and where the backends work now, before the lines. */
  #before(u) {
    const { ctx: context, bbox } = u;
    const ratio = devicePixelRatio;
    const spot = (x, y) => [u.valToPos(x, "x", true), u.valToPos(y, "y", true)];
    context.save();
    context.beginPath();
    context.rect(bbox.left - 9 * ratio, bbox.top, bbox.width + 9 * ratio, bbox.height); // a large shape may stand at its edge
    context.clip();
    for (const role of ROLES) {
      const colour = this.ink[role];
      this.#whiskers(context, spot, role, colour, ratio);
      this.#beyond(context, spot, role, colour, ratio);
      context.globalAlpha = 0.3;
      const counts = (store.columns[`${role}_in_flight`] ?? []).slice(-SEEN);
      const speeds = (store.columns[`${role}_tok_s`] ?? []).slice(-SEEN);
      counts.forEach((count, at) => {
        if (count > 0 && speeds[at] !== null) shape(context, role, ...spot(count, speeds[at]), 2.6 * ratio, { colour });
      });
      context.globalAlpha = 1;
    }
    for (const role of ROLES) {
      const point = this.points?.[role];
      if (point) shape(context, role, ...spot(Math.max(point.in_flight, 0.72), point.tok_s), 8 * ratio, { colour: this.ink[role], paper: this.ink.ink });
    }
    context.restore();
  }

  #whiskers(context, spot, role, colour, ratio) {
    context.strokeStyle = colour;
    context.lineWidth = 1.2 * ratio;
    for (const point of this.#measured?.[role] ?? []) {
      const [x, y] = spot(point.in_flight, point.tok_s);
      shape(context, role, x, y, 3.4 * ratio, { colour });
      if (point.low === null || point.high === null) continue;
      const [, top] = spot(point.in_flight, point.high);
      const [, bottom] = spot(point.in_flight, point.low);
      context.beginPath();
      context.moveTo(x, top);
      context.lineTo(x, bottom);
      context.stroke();
    }
  }

  /** What routing goes by beyond the last point that was measured. */
  #beyond(context, spot, role, colour, ratio) {
    const points = this.#measured?.[role] ?? [];
    if (!points.length) return;
    context.save();
    context.strokeStyle = colour;
    context.lineWidth = ratio;
    context.setLineDash([2 * ratio, 3 * ratio]);
    context.beginPath();
    const [from, to] = [points.at(-1).in_flight, this.#range()[1]];
    for (let step = 0; step <= STEPS; step += 1) {
      const in_flight = from * (to / from) ** (step / STEPS);
      const place = spot(in_flight, carried(points, in_flight));
      if (step) context.lineTo(...place);
      else context.moveTo(...place);
    }
    context.stroke();
    context.restore();
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

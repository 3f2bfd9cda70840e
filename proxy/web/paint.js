// What is drawn on charts beside lines: the strip of the favoured role, marks of the journal, shapes of roles, hatching.

/** The colours in force, by their names in style.css. */
export function colours() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(`--${name}`).trim();
  const names = ["ink", "quiet", "line", "grid", "paper", "speculative", "baseline", "bound", "alarm"];
  return Object.fromEntries(names.map((name) => [name, of(name)]));
}

const rem = () => Number.parseFloat(getComputedStyle(document.documentElement).fontSize);

/** How axes look, in the size of the page's text: `size` is the width of one at the side, with room for `0.25 ms`, `height`
 * of one below, `between` what two instants need. */
export function axisOf(ink) {
  const look = { stroke: ink.quiet, grid: { stroke: ink.grid, width: 1 }, ticks: { show: false } };
  return { ...look, font: `${rem() * 0.78}px system-ui, sans-serif`, size: rem() * 3.8, between: rem() * 4.1, height: rem() * 1.7, gap: rem() * 0.3 };
}

/** The letter by which a mark is read without colour, by the kind of its entry. */
export const LETTERS = {
  regime: "R", circuit: "C", health: "H", eligible: "E", pin: "P", drain: "D", reload: "F", reload_failed: "F",
  engine_seen: "N", engine_changed: "N", learning: "L", disagreement: "!", caution: "!", started: "S", draining: "S",
  silent: "H", silent_over: "H", turn: "T", refusals: "X", refusals_over: "X", failures: "X", failures_over: "X",
};

/** A pattern of slanting lines, the other way round for the baseline: told apart without colour. */
export function hatched(context, colour, leaning) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 8;
  const pen = tile.getContext("2d");
  pen.strokeStyle = colour;
  pen.lineWidth = 2;
  pen.beginPath();
  for (const shift of [-8, 0, 8]) {
    pen.moveTo(leaning ? shift : shift + 8, 0);
    pen.lineTo(leaning ? shift + 8 : shift, 8);
  }
  pen.stroke();
  return context.createPattern(tile, "repeat");
}

/** A role's shape at a point of the canvas: a diamond or a circle of `size` pixels, filled or hollow. */
export function shape(context, role, x, y, size, { colour, paper = null }) {
  context.beginPath();
  if (role === "speculative") {
    context.moveTo(x, y - size);
    context.lineTo(x + size, y);
    context.lineTo(x, y + size);
    context.lineTo(x - size, y);
    context.closePath();
  } else context.arc(x, y, size * 0.85, 0, Math.PI * 2);
  context.fillStyle = colour;
  context.fill();
  if (paper) {
    context.strokeStyle = paper;
    context.lineWidth = Math.max(1.5, size / 4);
    context.stroke();
  }
}

/** The strip below the plot: who was favoured, solid for speculative and hatched for baseline. */
export function strip(u, instants, roles, ink) {
  const { ctx: context, bbox } = u;
  const height = 7 * devicePixelRatio;
  const top = bbox.top + bbox.height - height;
  const fills = { speculative: ink.speculative, baseline: hatched(context, ink.baseline, true) };
  const x = (at) => Math.max(bbox.left, Math.min(bbox.left + bbox.width, u.valToPos(instants[at], "x", true)));
  context.save();
  let from = 0;
  for (let at = 1; at <= roles.length; at += 1) {
    if (at < roles.length && roles[at] === roles[from]) continue;
    const [left, right] = [x(from), x(Math.min(at, roles.length - 1))];
    if (roles[from] && right > left) {
      context.fillStyle = ink.paper;
      context.fillRect(left, top, right - left, height);
      context.fillStyle = fills[roles[from]];
      context.fillRect(left, top, right - left, height);
    }
    from = at;
  }
  context.restore();
}

// Where letters would lie on each other these come first, and the others go below, in so many rows.
const FIRST = "PDXRHCFEL!SNT";
const ROWS = 3;
const rank = (entry) => (FIRST.indexOf(LETTERS[entry.kind]) + 1 || FIRST.length + 1);

/** Marks of entries at the top of the plot: thin lines, and over all of them letters in boxes, beside the names of levels. */
export function marks(u, entries, ink, letters) {
  const { ctx: context, bbox } = u;
  const ratio = devicePixelRatio;
  const size = Math.round(0.95 * rem() * ratio);
  const rows = Array.from({ length: ROWS }, (_, row) => {
    const top = bbox.top + row * (size + ratio);
    return { top, taken: (u.named ?? []).filter((name) => name.top < top + size && name.bottom > top).map(({ left, right }) => [left, right]) };
  });
  context.save();
  context.font = `600 ${size * 0.72}px system-ui, sans-serif`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.strokeStyle = ink.quiet;
  context.lineWidth = ratio;
  const places = entries.map((entry) => ({ entry, x: Math.round(u.valToPos(entry.at_s, "x", true)) })).filter(({ x }) => x >= bbox.left && x <= bbox.left + bbox.width);
  context.setLineDash([2 * ratio, 3 * ratio]);
  context.beginPath();
  for (const { x } of places) {
    context.moveTo(x, bbox.top + size);
    context.lineTo(x, bbox.top + bbox.height);
  }
  context.stroke();
  context.setLineDash([]);
  for (const { entry, x } of letters ? places.sort((one, two) => rank(one.entry) - rank(two.entry)) : []) {
    const [left, right] = [x - (size + ratio) / 2, x + (size + ratio) / 2];
    const row = rows.find(({ taken }) => taken.every(([from, to]) => to <= left || from >= right));
    if (!row) continue;
    row.taken.push([left, right]);
    const { top } = row;
    context.fillStyle = ink.paper;
    context.fillRect(x - size / 2, top, size, size);
    context.strokeRect(x - size / 2, top, size, size);
    context.fillStyle = ink.ink;
    context.fillText(LETTERS[entry.kind] ?? "·", x, top + size / 2 + ratio / 2);
  }
  context.restore();
}

/** The names of levels, {value, name}, at their left end, each above its line, or in one where lines are so near. */
export function levels(u, told, ink) {
  const { ctx: context, bbox } = u;
  const ratio = devicePixelRatio;
  const height = rem() * 0.78 * ratio;
  const left = bbox.left + 4 * ratio;
  u.named = [];
  context.save();
  context.font = `${height}px system-ui, sans-serif`;
  context.fillStyle = ink.bound;
  context.textAlign = "left";
  context.textBaseline = "alphabetic";
  for (const { value, name } of told.sort((one, two) => two.value - one.value)) {
    // Above the strip of the favoured role too.
    const bottom = Math.min(u.valToPos(value, "y", true) - 4 * ratio, bbox.top + bbox.height - 9 * ratio);
    const last = u.named.at(-1);
    if (last && bottom - height < last.bottom) last.words += `, ${name} ${value}`;
    else u.named.push({ left, top: bottom - height, bottom, words: `${name} ${value}` });
  }
  for (const each of u.named) {
    each.right = left + context.measureText(each.words).width;
    context.fillText(each.words, left, each.bottom);
  }
  context.restore();
}

/** A kept moment: a solid line over the whole height. */
export function kept(u, at_s, ink) {
  const { ctx: context, bbox } = u;
  const x = Math.round(u.valToPos(at_s, "x", true));
  if (x < bbox.left || x > bbox.left + bbox.width) return;
  context.save();
  context.strokeStyle = ink.ink;
  context.lineWidth = 1.5 * devicePixelRatio;
  context.beginPath();
  context.moveTo(x, bbox.top);
  context.lineTo(x, bbox.top + bbox.height);
  context.stroke();
  context.restore();
}

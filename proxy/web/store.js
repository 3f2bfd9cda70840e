// What the page knows: half an hour of columns, the newest decisions and journal entries, the last state. No drawing.

const MAX_SAMPLES = 1800;
// As many decisions as a person looks back over; at ten thousand a minute the stream shows twenty a second.
const MAX_DECISIONS = 200;
const MAX_ENTRIES = 500;
const ROOM_S = 8;
// Between two looks the proxy's clocks drift apart by less.
const SAME_S = 0.05;

export const store = {
  columns: {},
  names: [],
  state: null,
  toldAt: 0, // of the proxy's clock, when the state came
  curves: null,
  decisions: [],
  decided: 0,
  entries: [],
  step_s: 1,
  heardAt: null, // of this page's clock, when the last row came
  gone: false, // nothing comes any more
};

/** Begin with a history as /history tells it. */
export function fill(history) {
  store.names = history.columns;
  store.step_s = history.step_s;
  store.heardAt = performance.now();
  store.columns = Object.fromEntries(history.columns.map((name, at) => [name, history.samples.map((row) => row[at])]));
}

/** Whether a row is so much older than the last that the proxy's clock was set back, and what is kept is of no time. */
export const setBack = (row) => row[0] < (store.columns.at_s?.at(-1) ?? 0) - 2 * store.step_s;

/** Add a row; one that is no newer than the last is not. */
export function add(row) {
  const instants = store.columns.at_s;
  store.heardAt = performance.now();
  if (!instants || row[0] <= (instants.at(-1) ?? 0)) return false;
  store.names.forEach((name, at) => {
    const column = store.columns[name];
    column.push(row[at]);
    if (column.length > MAX_SAMPLES) column.shift();
  });
  return true;
}

/** Take the counts of the last row into the state, which comes seconds apart: the page tells one number of a thing. */
export function freshen() {
  const last = (name) => store.columns[name]?.at(-1);
  store.state.waiting = last("waiting") ?? store.state.waiting;
  for (const backend of store.state.backends) backend.in_flight = last(`${backend.role}_in_flight`) ?? backend.in_flight;
}

/** Take a state as it is told now. */
export function take(state) {
  [store.state, store.toldAt] = [state, latest()];
}

/** For how long the favoured role has been that, in seconds; null since the start. */
export const favouredFor = () => (store.state.regime_age_s === null ? null : store.state.regime_age_s + now() - store.toldAt);

/** Add decisions as the stream tells them. */
export function decide({ shown }) {
  store.decisions = [...shown, ...store.decisions].slice(0, MAX_DECISIONS);
}

/** Add a journal entry; one that came before the stream began was in the first look too. */
export function note(entry) {
  const known = store.entries.some(({ at_s, kind, sentence }) => kind === entry.kind && sentence === entry.sentence && Math.abs(at_s - entry.at_s) < SAME_S);
  if (known) return;
  store.entries = [entry, ...store.entries].slice(0, MAX_ENTRIES);
}

/** How the configuration's file is called. */
export const configFile = () => store.state?.config_file ?? "crossover.yaml";

/** How many samples there are. */
export const length = () => store.columns.at_s?.length ?? 0;

/** The last instant in unix seconds, by the proxy's clock. */
export const latest = () => store.columns.at_s?.at(-1) ?? Date.now() / 1000;

/** Now, by the proxy's clock: it goes on by ours where nothing comes. */
export const now = () => latest() + (store.gone ? silence() : 0);

/** For how many seconds nothing has come. */
export const silence = () => (performance.now() - store.heardAt) / 1000;

/** From when on a span of time is drawn: as far back as is known, two minutes at least. What is told of a start comes
 * shortly before the first row, and has room. */
export function since(span) {
  const first = store.columns.at_s?.[0] ?? latest();
  return Math.max(latest() - span, Math.min(first - ROOM_S, latest() - 120));
}

/** The index of the sample nearest to an instant. */
export function nearest(at_s) {
  const instants = store.columns.at_s ?? [];
  let low = 0;
  let high = instants.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (instants[middle] < at_s) low = middle + 1;
    else high = middle;
  }
  return low > 0 && at_s - instants[low - 1] < instants[low] - at_s ? low - 1 : low;
}

/** The mean of a column's values from index `from` up to `to`, without nulls; null where there are none. */
export function mean(name, from, to) {
  let sum = 0;
  let count = 0;
  const column = store.columns[name] ?? [];
  for (let at = Math.max(0, from); at < Math.min(to, column.length); at += 1) {
    if (column[at] === null) continue;
    sum += column[at];
    count += 1;
  }
  return count ? sum / count : null;
}

/** The sum of a column between two indices. */
export function total(name, from, to) {
  let sum = 0;
  const column = store.columns[name] ?? [];
  for (let at = Math.max(0, from); at < Math.min(to, column.length); at += 1) sum += column[at] ?? 0;
  return sum;
}

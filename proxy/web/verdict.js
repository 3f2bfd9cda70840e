// Whether speculation is worth it here: one word, the sentence that was measured, and where the present load lies.

import { at, make, say } from "./dom.js";
import { configFile, length, mean, store, total } from "./store.js";
import { figure, percent } from "./words.js";

const SHORT = {
  never_speculate: "No, never.",
  always_speculate: "Yes, always.",
  unknown: "Not known yet.",
};

/** Tell it by the curves and the last minutes. */
export function tellVerdict() {
  const contexts = store.curves?.contexts ?? [];
  const more = at("verdict-more");
  if (!contexts.length) {
    say(at("verdict"), "Not known: nothing was measured here.");
    lines(more, [
      `scripts/calibrate ${configFile()} measures both backends in an hour and says it in one sentence; name the curves.yaml that it writes as routing.curves_file.`,
      lately(),
    ]);
    return;
  }
  const first = contexts[0];
  say(at("verdict"), short(first));
  lines(more, [
    ...contexts.map((each) => `At ${figure(each.context_tokens)} tokens of context: ${each.sentence}`),
    beside(first),
    spared(),
    lately(),
    learned(),
  ]);
}

function lines(element, sentences) {
  const told = sentences.filter(Boolean);
  while (element.children.length > told.length) element.lastChild.remove();
  told.forEach((sentence, index) => {
    if (!element.children[index]) element.append(make("p"));
    say(element.children[index], sentence);
  });
}

function short(context) {
  const crossings = context.crossings;
  if (context.verdict !== "crossover_at" || !crossings.length) return SHORT[context.verdict] ?? "";
  if (crossings.length > 1) return "Yes, at some loads.";
  const [{ at: crossing, faster_above }] = crossings;
  const side = faster_above === "baseline" ? "below" : "above";
  return `Yes, ${side} about ${figure(Math.round(crossing))} in flight.`;
}

/** Where the present load lies beside the band. */
function beside(context) {
  const end = length();
  const now = mean("speculative_in_flight", end - 1, end) + mean("baseline_in_flight", end - 1, end);
  const band = context.band;
  if (!band) return null;
  const load = now < 0.5 ? "Nothing is in flight now" : `${figure(now)} ${now === 1 ? "is" : "are"} in flight now`;
  // Where nothing is served there is nothing to choose between, and a count that only grows says nothing of the load.
  if (!store.state.backends.some(serves)) return `${load}, and no backend serves: which one would be faster makes no difference until one does.`;
  if (now <= band.enter_at) return `${load}: below the crossover.`;
  if (now >= band.leave_at) return `${load}: above the crossover.`;
  return `${load}: within the crossover, where the two hardly differ.`;
}

const serves = ({ eligible, draining, silent }) => eligible && !draining && !silent;

/** Whether both serve: beside one that is out nothing is shared out, and nothing is held against the other. */
const both = () => store.state.backends.every(serves);

/** Why requests go to the slower one too: the verdict alone would make a split look like a mistake. */
function spared() {
  const { policy, pinned } = store.state ?? {};
  if (pinned || !["marginal", "overflow"].includes(policy) || !both()) return null;
  return "That compares them each alone. Since each has its own GPUs, both are used: a request goes to the other one as soon as it is served sooner there, out of the crowd.";
}

/** What the traffic of the last quarter of an hour says. */
function lately() {
  const end = length();
  const from = end - 900;
  const [ours, theirs] = [total("speculative_requests", from, end), total("baseline_requests", from, end)];
  if (!(ours + theirs)) return "No requests in the last quarter of an hour.";
  const alone = ["speculative", "baseline"].map((role) => {
    const tpot_s = mean(`${role}_tpot_s`, from, end);
    return tpot_s ? `${role} ${figure(1 / tpot_s)}` : null;
  });
  const speeds = alone.filter(Boolean).length ? `; tokens a second for each stream, at its own load: ${alone.filter(Boolean).join(", ")}` : "";
  return `In the last quarter of an hour ${percent(ours / (ours + theirs))} of requests went to speculative${speeds}.`;
}

/** What live traffic has taught, in the proxy's words. */
function learned() {
  return store.state?.learning && both() ? store.state.learning.sentence : null;
}

// The table of decisions, newest first, and one request in full. Rows are reused: at ten thousand decisions a minute
// twenty a second are shown, and the rest is counted.

import { at, make, named, say } from "./dom.js";
import { get } from "./feed.js";
import { store } from "./store.js";
import { clock, cost, difference, duration, figure, other, several, why } from "./words.js";

const ROWS = 60;
let paused = false;

/** Make the empty table and its buttons. */
export function beginDecisions() {
  at("pause").addEventListener("click", () => {
    paused = !paused;
    at("pause").setAttribute("aria-pressed", String(paused));
    say(at("pause"), paused ? "Go on" : "Pause");
    if (!paused) tellDecisions();
  });
  at("rows").addEventListener("click", (event) => {
    const id = event.target.closest("button")?.dataset.id;
    if (id !== undefined) tellRequest(id);
  });
}

/** How many there are. */
export function tellRate() {
  say(at("rate"), `${several(store.decided, "decision")} in the last second${paused ? "; the table stands still" : ""}`);
}

/** Show the newest. */
export function tellDecisions() {
  tellRate();
  if (paused) return;
  const rows = at("rows");
  const shown = store.decisions.slice(0, ROWS);
  while (rows.children.length > Math.max(1, shown.length)) rows.lastChild.remove();
  if (!shown.length) {
    rows.replaceChildren(make("tr", {}, make("td", { colspan: "7", class: "quiet", text: "No decision yet: send a request." })));
    return;
  }
  if (rows.querySelector("[colspan]")) rows.replaceChildren();
  shown.forEach((decision, index) => write(rows.children[index] ?? rows.appendChild(row()), decision));
}

/** Under policy consolidate a cost is how long the answer takes if that backend serves everything; name it so. */
export function tellHeads(policy) {
  const heads = document.querySelectorAll("#decisions th");
  const consolidates = policy === "consolidate";
  say(heads[4], consolidates ? "Answer takes there" : LABELS[4]);
  say(heads[5], consolidates ? "On the other, serving all" : LABELS[5]);
}

const LABELS = ["Time", "Sent to", "Why", "In flight then", "Cost there", "The other would have cost", "Request"];

function row() {
  return make("tr", {}, ...LABELS.map((label, index) => make("td", { "data-label": label }, index === 6 ? make("button", { type: "button", class: "id" }) : "")));
}

function write(line, decision) {
  const { because, role } = decision;
  const [when, to, reason, counts, here, there, id] = line.children;
  if (id.firstChild.dataset.id === decision.request_id && line.dataset.at === String(decision.at_s)) return;
  line.dataset.at = decision.at_s;
  say(when, clock(decision.at_s));
  if (line.dataset.role !== role) {
    line.dataset.role = role;
    to.replaceChildren(named(role));
  }
  const attempt = decision.attempt > 1 ? `attempt ${decision.attempt}: ` : "";
  say(reason, `${attempt}${why(decision)}${because.learned ? " (speeds as learned)" : ""}`);
  say(counts, `${because.speculative_in_flight} speculative, ${because.baseline_in_flight} baseline`);
  say(here, cost(because, role));
  const more = difference(decision);
  say(there, `${cost(because, other(role))}${more ? `, ${more}` : ""}`);
  say(id.firstChild, decision.request_id);
  id.firstChild.dataset.id = decision.request_id;
  id.firstChild.title = "Tell all of this request";
}

/** One request in full, in a dialog. */
async function tellRequest(id) {
  const box = at("detail-what");
  say(at("detail-title"), `Request ${id}`);
  box.replaceChildren(make("p", { text: "Looking …" }));
  at("detail").showModal();
  try {
    const told = await get(`decisions?request_id=${encodeURIComponent(id)}`);
    const [sentences, end] = [told.sentences.map((text) => make("p", { text })), ended(told.settled)];
    box.replaceChildren(...sentences, ...told.decisions.map(full), ...(told.settled || !sentences.length ? [end] : []));
  } catch (error) {
    box.replaceChildren(make("p", { text: error.message }));
  }
}

function full(decision) {
  const { because, role } = decision;
  const facts = {
    "Decided at": clock(decision.at_s),
    "Sent to": role ?? "nobody",
    Why: why(decision),
    Policy: because.policy,
    "In flight then": `${because.speculative_in_flight} speculative, ${because.baseline_in_flight} baseline${because.smoothed === null ? "" : `, ${figure(because.smoothed)} smoothed`}`,
    "Cost on speculative": cost(because, "speculative"),
    "Cost on baseline": cost(because, "baseline"),
    "Prompt tokens cached": because.speculative_cached || because.baseline_cached ? `${because.speculative_cached} speculative, ${because.baseline_cached} baseline` : null,
    Weight: decision.weight > 1 ? several(decision.weight, "sequence") : null,
    Route: decision.route,
  };
  return list(decision.attempt > 1 ? `Attempt ${decision.attempt}` : "Decision", facts);
}

function ended(settled) {
  if (!settled) return make("p", { class: "quiet", text: "It has not ended yet, or is no longer remembered." });
  return list("How it ended", {
    Outcome: `${outcome(settled)}, status ${settled.status}`,
    Failure: settled.failure ?? settled.first_failure,
    "Its backend then": settled.silent_s === null ? settled.backend_out : `${settled.backend_out}, no sign of life for ${duration(settled.silent_s)}`,
    "Whole time": duration(settled.duration_s),
    Waited: settled.queue_s > 0.001 ? duration(settled.queue_s) : null,
    "First token after": settled.ttft_s === null ? null : duration(settled.ttft_s),
    "Each further token": settled.tpot_s === null ? null : duration(settled.tpot_s),
    Tokens: `${settled.prompt_tokens} read (${settled.cached_tokens} cached), ${settled.completion_tokens} written`,
  });
}

const OUTCOMES = {
  finished: "finished",
  failed_before_commit: "failed before its answer began",
  failed_after_commit: "its answer broke off",
  client_gone_waiting: "the client left before the answer",
  client_gone_in_stream: "the client left in the midst of the answer",
  shut_down: "ended as the proxy stopped",
};

function outcome({ outcome: kind, status, role }) {
  return kind === "failed_before_commit" && role === null ? "refused" : (OUTCOMES[kind] ?? kind);
}

function list(title, facts) {
  const told = Object.entries(facts).filter(([, value]) => value !== null && value !== undefined);
  return make("div", {}, make("h3", { text: title }), make("dl", { class: "facts" }, ...told.flatMap(([name, value]) => [make("dt", { text: name }), make("dd", { text: value })])));
}

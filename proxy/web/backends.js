// The two backends and the queue, as the status tells them. The cards are made once and then only written to.

import { ask, drain, pin, unpin } from "./actions.js";
import { at, make, named, say } from "./dom.js";
import { store } from "./store.js";
import { figure, percent, ROLES, several, span } from "./words.js";

const FIELDS = [
  ["Sequences in flight", inFlight],
  ["Requests in flight", (backend) => figure(backend.requests)],
  ["Circuit", (backend) => `${backend.circuit.replace("_", " ")}${backend.circuit_age_s === null ? "" : `, since ${span(backend.circuit_age_s)}`}`],
  ["Oldest request", (backend) => (backend.oldest_s > 0 ? span(backend.oldest_s) : "none")],
  ["By the engine's own count", engineCount],
  ["Drift", drift],
  ["Tokens a verify step", (backend) => (backend.accept_length === null ? "–" : backend.accept_length.toFixed(2))],
  ["Speed beside the measured", ({ role }) => store.state.learning?.beside?.[role] ?? "not learned"],
  ["Engine", (_, facts, url) => `${facts?.version ? `version ${facts.version}` : "version not told"} at ${url}`],
  ["Model", (_, facts) => facts?.model ?? "not told"],
  ["Speculation", (_, facts) => (facts?.speculative_algorithm ?? (facts?.version ? "none told of" : "not told")) + (facts?.speculative_adaptive ? ", adapting itself" : "")],
  ["Context", (_, facts) => (facts?.context_length ? `${figure(facts.context_length)} tokens` : "not told")],
];

const cards = {};

/** Make the cards. */
export function beginBackends() {
  for (const role of ROLES) {
    const values = FIELDS.map(([name]) => make("dd", { text: "–", "data-name": name }));
    const state = make("p", { class: "state", text: "–" });
    const drains = make("button", { type: "button", text: "Drain", onclick: () => ask(drain(role, !cards[role].draining)) });
    const pins = make("button", { type: "button", text: "Pin", onclick: () => ask(pin(role)) });
    const list = make("dl", { class: "facts" }, ...FIELDS.flatMap(([name], index) => [make("dt", { text: name }), values[index]]));
    const element = make("article", { class: `card ${role}`, "aria-label": role }, make("h3", {}, named(role)), state, list, make("div", { class: "buttons" }, pins, drains));
    cards[role] = { values, state, drains, pins, draining: false };
    at("cards").append(element);
  }
  at("cards").append(make("article", { class: "card queue", "aria-label": "queue" }, make("h3", { text: "Queue and connections" }), make("p", { class: "state", id: "queue-state" }), make("dl", { class: "facts", id: "queue" })));
  at("unpin").addEventListener("click", () => ask(unpin()));
}

/** Show the state. */
export function tellBackends() {
  const { state } = store;
  for (const backend of state.backends) {
    const card = cards[backend.role];
    card.draining = backend.draining;
    FIELDS.forEach(([, read], index) => say(card.values[index], read(backend, state.engines[backend.role], state.urls[backend.role])));
    say(card.state, standing(backend));
    card.state.dataset.state = standing(backend).startsWith("✓") ? "good" : standing(backend).startsWith("■") ? "held" : "bad";
    say(card.drains, backend.draining ? "Take back into service" : "Drain");
    say(card.pins, `Pin everything to ${backend.role}`);
    card.pins.disabled = state.pinned === backend.role;
  }
  at("unpin").hidden = state.pinned === null;
  tellQueue(state);
}

function standing(backend) {
  const health = backend.up === null ? "health not known yet" : backend.silent ? "silent" : backend.up ? "up" : "down";
  if (backend.draining) return `■ Draining: takes nothing new (${health})`;
  if (!backend.eligible) return `✕ Takes no requests: ${backend.up === false ? "down" : `circuit ${backend.circuit.replace("_", " ")}`}`;
  if (backend.circuit !== "closed") return `■ Takes single trial requests after its failures (${health})`;
  if (backend.silent) return "✕ Gives no sign of life (silent)";
  return `✓ Takes requests (${health})`;
}

function inFlight(backend) {
  const most = backend.max_in_flight === null ? "; no limit known" : ` of ${figure(backend.max_in_flight)}, ${percent(backend.in_flight / backend.max_in_flight)}`;
  return `${figure(backend.in_flight)}${most}${backend.lingering ? `; ${backend.lingering} linger` : ""}`;
}

function engineCount(backend) {
  if (backend.up === false) return "down";
  if (backend.engine_running === null) return backend.engine_age_s === null ? "tells none" : `silent for ${span(backend.engine_age_s)}`;
  return `${backend.engine_running} running, ${backend.engine_waiting} waiting`;
}

function drift(backend) {
  if (backend.drift === null || backend.up === false) return "–";
  if (backend.drift === 0) return "0: both counts agree";
  return `${backend.drift > 0 ? "+" : ""}${backend.drift}${backend.drift > 2 ? ": more runs there than was sent from here" : ""}`;
}

function tellQueue(state) {
  say(at("queue-state"), state.waiting ? `■ ${several(state.waiting, "request")} waiting for room` : "✓ Nobody waits");
  at("queue-state").dataset.state = state.waiting ? "held" : "good";
  const facts = {
    Ready: state.ready ? "yes, /ready answers 200" : "no, load balancers turn away",
    "Client connections": figure(state.connections),
    "Bodies held": `${figure(state.held_body_bytes / 1024)} KiB`,
    "Last reload": state.reload_failed ? "refused: the file is wrong, the old configuration holds" : "taken over",
    Learning: state.learning ? `${several(state.learning.probes, "probe")} in ${several(state.learning.requests, "request")}` : "off",
    ...Object.fromEntries(Object.entries(state.dropped_in_flight).map(([url, count]) => [`Still on ${url}`, several(count, "sequence")])),
  };
  const list = at("queue");
  const told = Object.entries(facts);
  if (list.children.length !== told.length * 2) list.replaceChildren(...told.flatMap(() => [make("dt"), make("dd")]));
  told.forEach(([name, value], index) => {
    say(list.children[index * 2], name);
    say(list.children[index * 2 + 1], value);
  });
}

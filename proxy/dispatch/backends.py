"""The two backends and what is known of them: circuits and health move here, by what requests and probes show.

Where a request goes is in desk.py; the rules that move a circuit or a health are pure and in routing/.
"""

from collections.abc import Callable

from proxy.dispatch.plans import Assignment, BackendPlan, Plan
from proxy.model import SPECULATIVE, Change, ChangeKind, CircuitState, EngineFacts, EngineLoad, Outcome, Role
from proxy.protocol.agreement import ghosts
from proxy.routing import blackhole, breaker, health, silence
from proxy.routing.breaker import Event
from proxy.routing.health import Evidence
from proxy.state.backend import Backend
from proxy.state.ledger import Ledger

_FAILURE = Event.FAILURE


class Backends:
    """Both backends. `clock` returns monotonic seconds; `on_room` is called when a place may have come free, and
    `on_change` gets every change of circuit, health, silence and drain, `on_standstill` a backend that stands still,
    with each probe that it leaves unanswered."""

    def __init__(self, plan: Plan, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.ledger = Ledger(clock)
        self.plan = plan
        self.on_room: Callable[[], None] = lambda: None
        self.on_change: Callable[[Change], None] = lambda _: None
        self.on_standstill: Callable[[Backend], None] = lambda _: None
        self._speculative, self._baseline = (self._new_backend(each) for each in plan.backends)

    def backend(self, role: Role) -> Backend:
        """The backend in use for `role`."""
        return self._speculative if role is SPECULATIVE else self._baseline

    @property
    def backends(self) -> tuple[Backend, Backend]:
        """Both backends, speculative first."""
        return (self._speculative, self._baseline)

    def judge(self, assignment: Assignment, event: Event) -> None:
        """Tell the breaker how an attempt went on its backend."""
        backend = assignment.backend
        if event is not _FAILURE and breaker.is_calm(backend.circuit):
            return
        now_s = self.clock()
        if event is _FAILURE:
            backend.failures = blackhole.add(backend.failures, now_s)
        sent_at_s = assignment.lease.opened_at_s
        self._move_circuit(backend, event, now_s, probe=assignment.probe, sent_at_s=sent_at_s)

    def tokens_flowed(self, backend: Backend) -> None:
        """Generation bytes came from a backend: the best sign of health there is."""
        if backend.unheard:
            self.spoke(backend)
        seen = backend.health
        if seen.up is not True or seen.misses or seen.doubtful:
            self.observe_health(backend, Evidence.TOKENS)

    def listen(self, backend: Backend) -> None:
        """A probe is sent: from now on it counts whether anything comes."""
        if not backend.unheard:
            backend.unheard, backend.unheard_since_s = True, self.clock()

    def unanswered(self, backend: Backend) -> None:
        """The probe's answer is late: a backend from which nothing else has come either is silent until it speaks. One
        that is not up is judged by its probes alone."""
        if backend.unheard and not backend.silent and backend.health.up:
            backend.silent = True
            self._announce(backend, ChangeKind.SILENCE, "false", "true")
            self.on_room()

    def spoke(self, backend: Backend) -> None:
        """Something came from a backend, whatever it was."""
        if not backend.unheard:
            return
        if backend.unanswered:
            backend.stood_s = max(backend.stood_s, self.clock() - backend.unheard_since_s)
        backend.unheard, backend.unanswered = False, 0
        if backend.silent:
            backend.silent = False
            self._announce(backend, ChangeKind.SILENCE, "true", "false")
            self.on_room()

    def gave_up(self, backend: Backend) -> None:
        """The probe's answer has not come within its limit."""
        backend.unanswered += backend.unheard

    def turned_away(self, backend: Backend) -> None:
        """The probe's connection was refused or broken off: no answer, but an engine that stands still does neither."""
        backend.unanswered = 0

    def stands_still(self, backend: Backend) -> bool:
        """See silence.py."""
        silent_s = backend.silence_s(self.clock()) or 0.0
        return silence.stands_still(self.plan.health, backend.health, backend.unanswered, silent_s, backend.stood_s)

    def observe_health(self, backend: Backend, evidence: Evidence) -> None:
        """Move a backend's health by one piece of evidence."""
        before = backend.health.up
        backend.health = health.advance(self.plan.health, backend.health, evidence, self.clock())
        if before is not backend.health.up:
            if before is False:
                backend.recovered_at_s = self.clock()
                backend.shelf.forget()  # an engine that was gone has begun anew
            self._announce(backend, ChangeKind.HEALTH, _word(before), _word(backend.health.up))
            self.on_room()
        if evidence is Evidence.MISS and self.stands_still(backend):
            self.on_standstill(backend)

    def observe_load(self, backend: Backend, load: EngineLoad) -> None:
        """Keep what an engine says of its own load; a higher limit may make room."""
        before, last = backend.max_in_flight, backend.load
        backend.load, backend.load_at_s = load, self.clock()
        if last is not None and _began_anew(last, load):
            backend.shelf.forget()
        self._measure(backend)
        if backend.max_in_flight != before:
            self.on_room()

    def learn_facts(self, backend: Backend, facts: EngineFacts) -> None:
        """Keep what an engine says of itself at start-up."""
        last, backend.facts = backend.facts, facts
        if last is not None and (last.version, last.started) != (facts.version, facts.started):
            backend.shelf.forget()
        before, after = _words_of(last), _words_of(facts)
        if before is not None and after is not None and before != after:
            backend.changed_at_s = self.clock()
        self._measure(backend)
        self.on_room()

    def drain(self, role: Role, *, draining: bool) -> None:
        """Give a backend nothing new while `draining`; what runs there goes on."""
        backend = self.backend(role)
        before, backend.draining = backend.draining, draining
        if before is not draining:
            self._announce(backend, ChangeKind.DRAIN, str(before).lower(), str(draining).lower())
            self.on_room()

    # ------------------------------------------------------------ inside

    def _measure(self, backend: Backend) -> None:
        """Give a backend's shelf the room of its engine."""
        affinity, facts, load = self.plan.rules.affinity, backend.facts, backend.load
        tokens = None if affinity is None else affinity.cache_tokens
        if tokens is None:
            # An engine that keeps no prefixes says so at its start.
            told = None if facts is None else facts.kv_tokens
            tokens = told if told == 0 or load is None or load.kv_tokens is None else load.kv_tokens
        backend.shelf.resize(tokens)

    def _linger_s(self, assignment: Assignment, outcome: Outcome, *, unheard: bool) -> float:
        if outcome is Outcome.FAILED_BEFORE_COMMIT and not unheard:
            return 0.0  # the engine never began
        facts = assignment.backend.facts
        if facts is not None and (ghosts(facts.version) or (unheard and not facts.notices_leaving)):
            lease = assignment.lease
            age_s = self.clock() - lease.opened_at_s
            return max(self.plan.linger_s, lease.book.typical_duration_s - age_s)
        return self.plan.linger_s if unheard else 0.0

    def _role_now(self, backend: Backend) -> Role:
        """The role that an engine has: a reload may have dropped it and taken it in again while a request waited."""
        return next((each.role for each in self.backends if each.url == backend.url), backend.role)

    def _new_backend(self, plan: BackendPlan) -> Backend:
        return Backend(plan.role, plan.url, self.ledger.add(plan.url), plan.max_in_flight)

    def _move_circuit(
        self, backend: Backend, event: Event, now_s: float, *, probe: bool = False, sent_at_s: float = float("inf")
    ) -> None:
        before = backend.circuit.state
        backend.circuit = breaker.advance(
            self.plan.breaker, backend.circuit, event, now_s, probe=probe, sent_at_s=sent_at_s
        )
        if backend.circuit.state is not before:
            if backend.circuit.state is CircuitState.CLOSED:
                backend.recovered_at_s = now_s
                # Its cache may be gone. What it stores for clients is not for failures alone, which any client can
                # bring about: that it has begun anew is seen by its health, its start and its counters.
                backend.shelf.empty()
            self._announce(backend, ChangeKind.CIRCUIT, before, backend.circuit.state)
            self.on_room()

    def _announce(self, backend: Backend, kind: ChangeKind, before: str, after: str) -> None:
        """Tell a change of a backend in use; what becomes of a dropped one would be taken for its successor's."""
        if self.backend(backend.role) is backend:
            self.on_change(Change(kind, backend.role, before, after))


def _words_of(facts: EngineFacts | None) -> str | None:
    """What its speed hangs on: the model, the version and the way it drafts; None where it tells no version."""
    if facts is None or facts.version is None:
        return None
    return " ".join(each for each in (facts.model, facts.version, facts.speculative_algorithm) if each)


def _began_anew(last: EngineLoad, load: EngineLoad) -> bool:
    """Whether an engine counts from a new start: what only grows has fallen, over as many ranks. With one missing less
    is summed up."""
    if load.ranks != last.ranks:
        return False
    if load.moments and last.moments:
        return load.moments[0] < last.moments[0]
    return load.generated is not None and last.generated is not None and load.generated < last.generated


def _word(up: bool | None) -> str:
    return "unknown" if up is None else "up" if up else "down"

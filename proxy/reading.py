"""One look at the desk for a scrape or a status page: counts, circuits, health and what the engines say.

What is said of it in words is in telling/.
"""

from collections import Counter

from proxy.dispatch import Desk
from proxy.metrics import BackendReading, Reading
from proxy.model import BackendLoad, CircuitState, Decision, LoadSnapshot, Policy, Reason, Role, Traits
from proxy.routing import policy, ramp
from proxy.routing.kept import Why, kept
from proxy.routing.out import Out
from proxy.routing.rules import Rules
from proxy.state.backend import Backend
from proxy.telling import ASKED, CERTAIN, FORCED, Favour, Lately, Present, Side

# Engines are asked every second by default; after this silence their own numbers are not shown any more.
FRESH_S = 10.0
# A request without wishes, of one sequence, and the route whose answers are as long as most.
PLAIN, USUAL_ROUTE = Traits(), "/v1/chat/completions"

# What the latest requests did is told by those of so many seconds: as many as make a share, and no more than are soon
# read; where they are fewer, by those of a minute.
LATELY_S, MIN_LATELY, MAX_LATELY, MINUTE_S = 20.0, 8, 100, 60.0

# What of the regime and its thresholds each policy looks at: of the others the status tells none.
LOOKED_AT = {
    Policy.THRESHOLD: ("regime", "regime_age_s", "enter_at", "leave_at"),
    Policy.CONSOLIDATE: ("regime", "regime_age_s"),
    Policy.OVERFLOW: ("leave_at",),
}


def read(
    desk: Desk, *, waiting: int, connections: int, held_body_bytes: int, ready: bool, reload_failed: bool
) -> Reading:
    """Everything that is read at a scrape, at the same instant."""
    desk.follow()
    now_s = desk.clock()
    regime, learning = desk.regime, desk.learning
    measured_gain, learned_gain = (None, None) if learning is None else learning.gains()
    why = None if learning is None else learning.harm.last
    return Reading(
        backends=tuple(_read_backend(desk, backend, now_s) for backend in desk.backends),
        regime=regime.role,
        regime_age_s=now_s - max(regime.since_s, desk.fresh_at_s),
        smoothed=regime.smoothed,
        enter_at=desk.rules.enter_at,
        leave_at=desk.rules.leave_at,
        waiting=waiting,
        connections=connections,
        held_body_bytes=held_body_bytes,
        ready=ready,
        reload_failed=reload_failed,
        learning_suspended=None if learning is None else learning.suspended(now_s),
        measured_gain=measured_gain,
        learned_gain=learned_gain,
        suspension_predicted_s=None if why is None else why.predicted_s,
        suspension_seen_s=None if why is None else why.seen_s,
        suspension_answers=None if why is None else why.answers,
    )


def _read_backend(desk: Desk, backend: Backend, now_s: float) -> BackendReading:
    counts = backend.book.counts(now_s)
    circuit = backend.circuit
    fresh = backend.load_at_s is not None and now_s - backend.load_at_s < FRESH_S
    # What an engine said before it died is no longer so.
    fresh = fresh and (backend.health.up is not False or (backend.load_at_s or 0.0) > backend.health.since_s)
    load = backend.load if fresh else None
    return BackendReading(
        role=backend.role,
        in_flight=counts.in_flight,
        lingering=counts.lingering,
        requests=counts.requests,
        oldest_s=counts.oldest_s,
        max_in_flight=backend.max_in_flight,
        up=backend.health.up,
        silent=backend.gives_nothing,
        eligible=backend.eligible(desk.plan.breaker, now_s),
        draining=backend.draining,
        circuit=circuit.state,
        circuit_age_s=None if circuit.since_s == float("-inf") else now_s - circuit.since_s,
        engine_running=load.running if load is not None else None,
        engine_waiting=load.waiting if load is not None else None,
        engine_age_s=None if backend.load_at_s is None else now_s - backend.load_at_s,
        drift=backend.drift() if fresh else None,
        accept_length=load.accept_length if load is not None else None,
        learned_ratio=None if desk.learning is None else desk.learning.ratio(backend),
        engine_change_age_s=None if backend.changed_at_s is None else now_s - backend.changed_at_s,
        curves_outdated=_outdated(desk, backend),
    )


def _outdated(desk: Desk, backend: Backend) -> bool | None:
    curves, facts = desk.rules.curves, backend.facts
    measured = None if curves is None else curves.versions.get(backend.role)
    if measured is None or facts is None or facts.version is None:
        return None
    return facts.version != measured


def present(desk: Desk, reading: Reading, phase: str, *, max_waiting: int | None = None) -> Present:
    """What is to be said of a reading just taken, of a proxy in this phase of its life, where so many requests may wait
    for room."""
    rules = desk.rules
    snapshot = desk.snapshot()
    speculative, baseline = (
        Side(load.role, load.in_flight, load.max_in_flight, _out(rules, load, desk.backend(load.role)))
        for load in (snapshot.speculative, snapshot.baseline)
    )
    # Decided by the rules themselves, so that what is said cannot differ from what happens.
    plain = _plain(desk, snapshot)
    return Present(
        policy=rules.effective_policy,
        speculative=speculative,
        baseline=baseline,
        phase=phase,
        pinned=rules.operator_pin,
        pin=rules.pin,
        regime=reading.regime,
        regime_age_s=reading.regime_age_s,
        favour=_favour(desk, snapshot.at_s),
        smoothed=reading.smoothed,
        enter_at=reading.enter_at,
        leave_at=reading.leave_at,
        waiting=reading.waiting,
        max_waiting=max_waiting,
        room=plain.role is not None,
        lately=_lately(desk),
        learning_suspended=bool(reading.learning_suspended),
        next=plain.role,
        reason=plain.reason,
        spare=_spare(desk, snapshot, plain),
        costs=plain.because.costs,
        tokens=desk.answers.expected(USUAL_ROUTE),
    )


def unlooked(rules: Rules) -> tuple[str, ...]:
    """What of a reading the policy in force does not look at, of the regime and its thresholds."""
    looked = LOOKED_AT.get(rules.effective_policy, ())
    return tuple(name for name in LOOKED_AT[Policy.THRESHOLD] if name not in looked)


def _plain(desk: Desk, snapshot: LoadSnapshot) -> Decision:
    return policy.decide(desk.rules, desk.regime, snapshot, PLAIN, expected_tokens=desk.answers.expected(USUAL_ROUTE))


def _spare(desk: Desk, snapshot: LoadSnapshot, plain: Decision) -> bool:
    """Whether a plain request would go to the other backend if nothing ran there."""
    if plain.role is None or desk.rules.effective_policy is not Policy.MARGINAL:
        return False
    idle = snapshot.of(plain.role.other)._replace(in_flight=0)
    beside = snapshot.of(plain.role)
    first, second = (beside, idle) if plain.role is Role.SPECULATIVE else (idle, beside)
    return _plain(desk, LoadSnapshot(snapshot.at_s, first, second)).role is plain.role.other


def _favour(desk: Desk, now_s: float) -> Favour:
    """Why the regime of policy consolidate is as it is."""
    learning = desk.learning
    if learning is not None and learning.tries.now is not None and learning.tries.now.role is desk.regime.role:
        return Favour(Why.TRIAL)
    found = kept(desk.rules, desk.regime, now_s)
    return Favour() if found is None else Favour(*found)


def _lately(desk: Desk) -> Lately | None:
    """What the latest requests did; None where there was none within a minute."""
    now_s = desk.clock()
    latest: list[Decision] = []
    for record in reversed(desk.ring):
        age_s = now_s - record.at_s
        if age_s > MINUTE_S or len(latest) == MAX_LATELY or (age_s > LATELY_S and len(latest) >= MIN_LATELY):
            break
        if record.decision.role is not None:
            latest.append(record.decision)
    return _told(latest, desk.rules.effective_policy) if latest else None


def _told(latest: list[Decision], now: Policy) -> Lately:
    """What these decisions tell, newest first."""
    by = [_forced_by(each, now) for each in latest]
    reason, number = Counter(by).most_common(1)[0]
    if 2 * number <= len(latest):
        reason = None
    newest = by[0]
    run = next((at for at, each in enumerate(by) if each is not newest), len(by))
    if run >= CERTAIN and newest is not reason and (newest is None or newest in ASKED):
        latest, by, reason = latest[:run], by[:run], newest
    told = Lately(len(latest), _ours(latest))
    if reason is None:
        return told
    forced = [decision for decision, each in zip(latest, by, strict=True) if each is reason]
    return told._replace(forced=reason, forced_requests=len(forced), forced_speculative=_ours(forced))


def _forced_by(decision: Decision, now: Policy) -> Reason | None:
    """What sent a request where that was not the policy in force."""
    reason = decision.reason
    own = reason is Reason.PINNED and now is Policy.PINNED
    return reason if reason in FORCED and not own else None


def _ours(decisions: list[Decision]) -> int:
    return sum(each.role is Role.SPECULATIVE for each in decisions)


def _out(rules: Rules, load: BackendLoad, backend: Backend) -> str | None:
    """Why a backend does not take all it would be sent, in the words of telling."""
    if load.out is not None:
        return load.out
    if backend.circuit.state is not CircuitState.CLOSED:
        return "trial"
    if backend.silent:
        return Out.SILENT
    if load.max_in_flight is not None and load.in_flight >= load.max_in_flight:
        return Out.FULL
    return Out.RAMPING if ramp.is_on(rules, load) else None

"""One look at the desk for a scrape or a status page: counts, circuits, health and what the engines say."""

from proxy.dispatch import Desk
from proxy.metrics import BackendReading, Reading
from proxy.state.backend import Backend

# Engines are asked every second by default; after this silence their own numbers are not shown any more.
FRESH_S = 10.0


def read(
    desk: Desk, *, waiting: int, connections: int, held_body_bytes: int, ready: bool, reload_failed: bool
) -> Reading:
    """Everything that is read at a scrape, at the same instant."""
    desk.follow()
    now_s = desk.clock()
    regime, learning = desk.regime, desk.learning
    why = None if learning is None else learning.harm.last
    return Reading(
        backends=tuple(_read_backend(desk, backend, now_s) for backend in desk.backends),
        regime=regime.role,
        regime_age_s=now_s - regime.since_s,
        smoothed=regime.smoothed,
        enter_at=desk.rules.enter_at,
        leave_at=desk.rules.leave_at,
        waiting=waiting,
        connections=connections,
        held_body_bytes=held_body_bytes,
        ready=ready,
        reload_failed=reload_failed,
        learning_suspended=None if learning is None else learning.suspended(now_s),
        suspension_predicted_s=None if why is None else why.predicted_s,
        suspension_seen_s=None if why is None else why.seen_s,
        suspension_answers=None if why is None else why.answers,
    )


def _read_backend(desk: Desk, backend: Backend, now_s: float) -> BackendReading:
    counts = backend.book.counts(now_s)
    circuit = backend.circuit
    fresh = backend.load_at_s is not None and now_s - backend.load_at_s < FRESH_S
    load = backend.load if fresh else None  # what an engine said before it died is no longer so
    return BackendReading(
        role=backend.role,
        in_flight=counts.in_flight,
        lingering=counts.lingering,
        requests=counts.requests,
        oldest_s=counts.oldest_s,
        max_in_flight=backend.max_in_flight,
        up=backend.health.up,
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
    )

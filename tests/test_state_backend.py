"""What is known of one backend: which limit is in force, whether it may be chosen, what a decision sees."""

import pytest

from proxy.model import CircuitState, EngineFacts, EngineLoad, Outcome, Role
from proxy.routing import blackhole
from proxy.routing.breaker import BreakerRules, Circuit
from proxy.routing.health import Health
from proxy.state.backend import Backend
from proxy.state.ledger import Ledger

NOW_S = 1000.0
RULES = BreakerRules(max_failures=5, open_s=10.0, max_probes=1)


@pytest.fixture
def ledger() -> Ledger:
    return Ledger(lambda: NOW_S)


@pytest.fixture
def backend(ledger: Ledger) -> Backend:
    return Backend(Role.SPECULATIVE, "http://a", ledger.add("http://a"))


def test_no_limit_is_known_before_the_engine_has_spoken(backend: Backend) -> None:
    assert backend.max_in_flight is None


def test_the_operators_limit_beats_the_engines(backend: Backend) -> None:
    backend.limit = 12
    backend.facts = EngineFacts(max_running_requests=48)
    backend.load = EngineLoad(running=0, waiting=0, max_running_requests=64)
    assert backend.max_in_flight == 12


def test_the_newest_word_of_the_engine_beats_its_first(backend: Backend) -> None:
    backend.facts = EngineFacts(max_running_requests=48)
    assert backend.max_in_flight == 48
    backend.load = EngineLoad(running=0, waiting=0, max_running_requests=64)
    assert backend.max_in_flight == 64


@pytest.mark.parametrize("said", [None, 0])
def test_a_poll_without_a_limit_leaves_the_first_in_force(backend: Backend, said: int | None) -> None:
    backend.facts = EngineFacts(max_running_requests=48)
    backend.load = EngineLoad(running=0, waiting=0, max_running_requests=said)
    assert backend.max_in_flight == 48


@pytest.mark.parametrize(("up", "eligible"), [(None, True), (True, True), (False, False)])
def test_a_backend_is_eligible_unless_it_is_known_to_be_down(backend: Backend, up: bool | None, eligible: bool) -> None:
    backend.health = Health(up=up)
    assert backend.eligible(RULES, NOW_S) is eligible


def test_a_draining_backend_is_not_eligible(backend: Backend) -> None:
    backend.draining = True
    assert not backend.eligible(RULES, NOW_S)


@pytest.mark.parametrize(
    ("circuit", "eligible"),
    [
        (Circuit(CircuitState.CLOSED), True),
        (Circuit(CircuitState.OPEN, NOW_S - 9.9), False),
        (Circuit(CircuitState.OPEN, NOW_S - 10), True),
        (Circuit(CircuitState.HALF_OPEN, NOW_S - 1), True),
        (Circuit(CircuitState.HALF_OPEN, NOW_S - 1, probes=(NOW_S + 9,)), False),
        (Circuit(CircuitState.HALF_OPEN, NOW_S - 11, probes=(NOW_S - 1,)), True),
    ],
)
def test_the_circuit_decides_whether_a_healthy_backend_is_eligible(
    backend: Backend, circuit: Circuit, eligible: bool
) -> None:
    backend.circuit = circuit
    assert backend.eligible(RULES, NOW_S) is eligible


def test_the_view_is_what_the_books_and_failures_say_at_that_instant(ledger: Ledger, backend: Backend) -> None:
    ledger.open(backend.book, 3)
    ledger.open(backend.book, 4).settle(Outcome.CLIENT_GONE_WAITING, linger_s=5.0)
    backend.limit = 16
    backend.failures = blackhole.add(blackhole.add(backend.failures, NOW_S), NOW_S)
    now, later = backend.view(RULES, NOW_S), backend.view(RULES, NOW_S + 5)
    assert (now.role, now.in_flight, now.max_in_flight, now.recent_failures) == (Role.SPECULATIVE, 7, 16, 2)
    assert (later.in_flight, later.recent_failures) == (3, 1)


def test_drift_is_unknown_before_the_first_poll(backend: Backend) -> None:
    assert backend.drift() is None


@pytest.mark.parametrize(("running", "waiting", "drift"), [(5, 2, 4), (3, 0, 0), (0, 0, -3)])
def test_drift_is_what_the_engine_has_beyond_our_count(
    ledger: Ledger, backend: Backend, running: int, waiting: int, drift: int
) -> None:
    ledger.open(backend.book, 3)
    backend.load = EngineLoad(running=running, waiting=waiting)
    assert backend.drift() == drift

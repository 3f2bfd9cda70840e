"""A scrape sees what is true at its instant."""

from dataclasses import replace

import pytest

from proxy.dispatch import Assignment, BackendPlan, Desk, Plan
from proxy.metrics import BackendReading, Reading
from proxy.model import CircuitState, EngineLoad, Outcome, Policy, Role, Traits
from proxy.reading import present, read
from proxy.routing.breaker import BreakerRules, Event
from proxy.routing.health import Evidence, HealthRules
from proxy.routing.retries import RetryRules
from proxy.routing.rules import Rules


class Rig:
    def __init__(self) -> None:
        self.now_s = 50.0
        rules = Rules(policy=Policy.THRESHOLD, leave_at=4, enter_at=2, smoothing_s=2.0, min_dwell_s=0.0)
        backends = (BackendPlan(Role.SPECULATIVE, "http://a", 9), BackendPlan(Role.BASELINE, "http://b"))
        self.desk = Desk(
            Plan(backends, rules, BreakerRules(max_failures=1, open_s=10.0), HealthRules(), RetryRules()),
            lambda: self.now_s,
        )

    def assign(self, weight: int = 1) -> Assignment:
        place = self.desk.assign(Traits(weight=weight), "id", "/generate")
        assert isinstance(place, Assignment)
        return place

    def read(self) -> Reading:
        return read(self.desk, waiting=3, connections=7, held_body_bytes=5, ready=True, reload_failed=False)

    def of(self, role: Role) -> BackendReading:
        return next(each for each in self.read().backends if each.role is role)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_what_the_caller_knows_is_passed_through(rig: Rig) -> None:
    reading = rig.read()
    assert (reading.waiting, reading.connections, reading.held_body_bytes) == (3, 7, 5)
    assert (reading.ready, reading.reload_failed) == (True, False)


def test_counts_and_ages_are_those_of_the_books(rig: Rig) -> None:
    rig.assign(weight=2)
    rig.desk.settle(rig.assign(), Outcome.CLIENT_GONE_WAITING, unheard=True)
    rig.now_s += 4.0
    seen = rig.of(Role.SPECULATIVE)
    assert (seen.in_flight, seen.lingering, seen.requests, seen.oldest_s, seen.max_in_flight) == (3, 1, 1, 4.0, 9)


def test_a_circuit_tells_its_state_and_age(rig: Rig) -> None:
    """Case H14: a circuit that is stuck is seen."""
    assert (rig.of(Role.SPECULATIVE).circuit, rig.of(Role.SPECULATIVE).circuit_age_s) == (CircuitState.CLOSED, None)
    place = rig.assign()
    rig.desk.judge(place, Event.FAILURE)
    rig.desk.settle(place, Outcome.FAILED_BEFORE_COMMIT)
    rig.now_s += 3.0
    seen = rig.of(Role.SPECULATIVE)
    assert (seen.circuit, seen.circuit_age_s, seen.eligible) == (CircuitState.OPEN, 3.0, False)


def test_what_an_engine_has_not_said_is_absent(rig: Rig) -> None:
    seen = rig.of(Role.BASELINE)
    assert (seen.up, seen.max_in_flight, seen.engine_running, seen.engine_age_s, seen.drift) == (None,) * 5


def test_what_an_engine_says_is_shown_with_its_age(rig: Rig) -> None:
    baseline = rig.desk.backend(Role.BASELINE)
    rig.desk.observe_health(baseline, Evidence.HIT)
    rig.desk.observe_load(baseline, EngineLoad(5, 2, max_running_requests=64, accept_length=2.5))
    rig.now_s += 1.5
    seen = rig.of(Role.BASELINE)
    assert (seen.engine_running, seen.engine_waiting, seen.drift, seen.accept_length) == (5, 2, 7, 2.5)
    assert (seen.engine_age_s, seen.max_in_flight, seen.up) == (1.5, 64, True)


def test_what_an_engine_said_before_it_was_down_is_not_shown_and_what_it_says_since_is(rig: Rig) -> None:
    backend = rig.desk.backend(Role.SPECULATIVE)
    backend.load, backend.load_at_s = EngineLoad(4, 0), rig.now_s
    rig.now_s += 1.0
    backend.health = replace(backend.health, up=False, since_s=rig.now_s)
    seen = rig.of(Role.SPECULATIVE)
    assert (seen.engine_running, seen.engine_waiting, seen.drift) == (None, None, None)
    rig.now_s += 1.0
    backend.load_at_s = rig.now_s
    assert rig.of(Role.SPECULATIVE).engine_running == 4


def test_the_regime_of_a_calm_proxy_does_not_stay_that_of_its_last_burst(rig: Rig) -> None:
    places = [rig.assign() for _ in range(20)]
    rig.now_s += 5.0
    for place in places:
        rig.desk.settle(place, Outcome.FINISHED)
    busy = rig.read()
    rig.now_s += 60.0
    calm = rig.read()
    assert (busy.regime, calm.regime) == (Role.BASELINE, Role.SPECULATIVE)
    assert (round(busy.smoothed), round(calm.smoothed)) == (18, 0)


def test_the_thresholds_are_those_in_force(rig: Rig) -> None:
    rules = replace(rig.desk.plan.rules, leave_at=12, enter_at=6)
    rig.desk.reload(replace(rig.desk.plan, rules=rules))
    assert (rig.read().enter_at, rig.read().leave_at) == (6, 12)


def test_what_is_said_of_a_reading_is_of_the_same_instant(rig: Rig) -> None:
    rig.assign(weight=2)
    told = present(rig.desk, rig.read(), "serving")
    assert (told.policy, told.pinned, told.phase, told.waiting) == (Policy.THRESHOLD, None, "serving", 3)
    assert (told.speculative.in_flight, told.speculative.max_in_flight, told.speculative.out) == (2, 9, None)
    assert (told.enter_at, told.leave_at, told.learning_suspended) == (2, 4, False)


def test_a_backend_out_of_service_is_said_to_be_so_by_its_first_cause(rig: Rig) -> None:
    backend = rig.desk.backend(Role.BASELINE)

    def out() -> str | None:
        return present(rig.desk, rig.read(), "serving").baseline.out

    rig.desk.observe_health(backend, Evidence.HIT)
    rig.desk.observe_health(backend, Evidence.HIT)
    assert out() is None
    for _ in range(3):
        rig.desk.observe_health(backend, Evidence.MISS)
    assert out() == "down"
    rig.desk.drain(Role.BASELINE, draining=True)
    assert out() == "draining"

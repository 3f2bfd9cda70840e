"""A scrape sees what is true at its instant."""

from dataclasses import replace

import pytest
from fakes.speeds import of_both

from proxy.dispatch import Assignment, BackendPlan, Desk, Plan
from proxy.metrics import BackendReading, Reading
from proxy.model import CircuitState, EngineLoad, Outcome, Placement, Policy, Reason, Role, Traits
from proxy.reading import MIN_LATELY, present, read, unlooked
from proxy.routing.breaker import BreakerRules, Event
from proxy.routing.health import Evidence, HealthRules
from proxy.routing.kept import Why
from proxy.routing.retries import RetryRules
from proxy.routing.rules import Rules
from proxy.telling import CERTAIN, Favour, Lately, Present


class Rig:
    def __init__(self, min_dwell_s: float = 0.0) -> None:
        self.now_s = 50.0
        rules = Rules(policy=Policy.THRESHOLD, leave_at=4, enter_at=2, smoothing_s=2.0, min_dwell_s=min_dwell_s)
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


# ---------------------------------------------------------------- what sentences are made of


def test_what_the_latest_requests_did_is_told_by_their_numbers_for_a_minute(rig: Rig) -> None:
    assert told(rig).lately is None
    for _ in range(3):
        rig.assign()
    rig.now_s += 50.0
    assert told(rig).lately == Lately(3, 3)
    rig.now_s += 11.0
    assert told(rig).lately is None


def test_where_they_are_many_the_latest_alone_tell(rig: Rig) -> None:
    places = [rig.assign() for _ in range(3)]
    rig.now_s += 21.0
    for place in places:
        rig.desk.settle(place, Outcome.FINISHED)
    rig.desk.pin(Role.BASELINE)
    for _ in range(MIN_LATELY):
        rig.assign()
    latest = told(rig).lately
    assert latest is not None
    assert (latest.requests, latest.speculative) == (MIN_LATELY, 0)


@pytest.mark.parametrize(("pinned", "free", "forced"), [(5, 4, Reason.OPERATOR_PIN), (4, 4, None), (0, 4, None)])
def test_what_most_were_forced_by_is_told_where_no_policy_sent_them(
    rig: Rig, pinned: int, free: int, forced: Reason | None
) -> None:
    rig.desk.pin(Role.BASELINE)
    for _ in range(pinned):
        rig.assign()
    rig.desk.pin(None)
    for _ in range(free):
        rig.assign()
    latest = told(rig).lately
    assert latest is not None
    assert (latest.forced, latest.forced_requests) == (forced, pinned if forced else 0)


def test_that_callers_choose_is_told_once_eight_in_a_row_did_and_no_longer_once_none_of_eight_does(rig: Rig) -> None:
    rules = replace(rig.desk.plan.rules, allow_header=True, leave_at=1000)
    rig.desk.reload(replace(rig.desk.plan, rules=rules))

    def latest(asked: Role | None, times: int) -> Lately:
        for _ in range(times):
            place = rig.desk.assign(Traits(asked=asked), "id", "/generate")
            assert isinstance(place, Assignment)
            rig.desk.settle(place, Outcome.FINISHED)
        lately = told(rig).lately
        assert lately is not None
        return lately

    latest(None, 90)
    assert latest(Role.SPECULATIVE, CERTAIN - 1).forced is None
    assert latest(Role.SPECULATIVE, 1) == Lately(8, 8, Reason.HEADER, 8, 8)
    assert latest(None, 1).forced is None, "of all of them few named theirs"
    assert latest(Role.SPECULATIVE, 90).forced is Reason.HEADER
    assert latest(None, CERTAIN - 1).forced is Reason.HEADER
    assert latest(None, 1).forced is None


def test_a_policy_that_pins_is_the_policys_own(rig: Rig) -> None:
    rig.desk.reload(replace(rig.desk.plan, rules=replace(rig.desk.plan.rules, policy=Policy.PINNED)))
    for _ in range(3):
        rig.assign()
    latest = told(rig).lately
    assert latest is not None and latest.forced is None


def test_a_backend_that_one_request_keeps_busy_is_spare_for_the_next_once_that_has_ended(rig: Rig) -> None:
    by_curves(rig, Placement.SEPARATE)
    place = rig.assign()
    assert place.decision.role is Role.SPECULATIVE
    busy = told(rig)
    assert (busy.next, busy.reason, busy.spare) == (Role.BASELINE, Reason.CHEAPER, True)
    rig.desk.settle(place, Outcome.FINISHED)
    assert (told(rig).next, told(rig).spare) == (Role.SPECULATIVE, False)


def test_a_role_that_the_past_alone_keeps_is_told_with_why(rig: Rig) -> None:
    by_curves(rig, Placement.SHARED)
    rig.assign()
    assert told(rig).favour == Favour()
    demand = rig.desk.regime.demand
    demand = demand._replace(peak_tok_s=1e6, excess=1e6)
    demand = demand._replace(answer_tokens=4.0, lasting_tok_s=demand.tok_s, lasted_s=300.0)  # of many, so well known
    since_s = rig.now_s - 2.0 * rig.desk.rules.dwell_s
    rig.desk.regime = rig.desk.regime._replace(role=Role.BASELINE, since_s=since_s, demand=demand)
    found = told(rig).favour
    assert found.why == Why.PAST


@pytest.mark.parametrize(
    ("policy", "unseen"),
    [
        (Policy.THRESHOLD, ()),
        (Policy.OVERFLOW, ("regime", "regime_age_s", "enter_at")),
        (Policy.PINNED, ("regime", "regime_age_s", "enter_at", "leave_at")),
    ],
)
def test_what_a_policy_does_not_look_at_is_named(policy: Policy, unseen: tuple[str, ...]) -> None:
    assert unlooked(Rules(policy)) == unseen


def told(rig: Rig) -> Present:
    return present(rig.desk, rig.read(), "serving")


def by_curves(rig: Rig, placement: Placement) -> None:
    """Speculation is the faster one alone, and for two of no more use than for one."""
    speeds = of_both({1: 60.0, 2: 60.0, 16: 60.0}, {1: 40.0, 16: 400.0})
    rig.desk.reload(replace(rig.desk.plan, rules=Rules(Policy.AUTO, placement, curves=speeds)))


def test_the_favour_is_no_older_than_the_policy_it_is_of() -> None:
    # The first regime is set back by a dwell, so that the first requests may change it.
    rig = Rig(min_dwell_s=60.0)
    rig.now_s += 13.0
    assert rig.read().regime_age_s == 13.0

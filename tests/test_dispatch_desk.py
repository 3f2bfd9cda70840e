"""The desk: deciding and counting are one step, and regimes, circuits and retries follow what happens."""

from itertools import pairwise
from typing import Any

import pytest
from fakes.rig import BASELINE, LINGER_S, OPEN_S, SPECULATIVE, Rig, plan
from fakes.speeds import of_both
from hypothesis import given
from hypothesis import strategies as st

from proxy.dispatch import Assignment
from proxy.model import ROLES, Change, ChangeKind, CircuitState, Outcome, Placement, Policy, Reason, Role, Traits
from proxy.routing.breaker import Event
from proxy.routing.health import Evidence


@pytest.fixture
def rig() -> Rig:
    return Rig()


# ---------------------------------------------------------------- deciding and counting are one step


def test_an_assignment_counts_as_soon_as_it_is_made(rig: Rig) -> None:
    place = rig.assign(weight=7)
    assert rig.in_flight(place.backend.role) == 7
    rig.finish(place)
    assert rig.in_flight(place.backend.role) == 0


@pytest.mark.parametrize("policy", [Policy.THRESHOLD, Policy.OVERFLOW])
def test_a_burst_in_one_tick_never_puts_more_than_leave_at_on_speculative(policy: Policy) -> None:
    """Case H10: the herd does not see an idle backend two hundred times over."""
    rig = Rig(policy=policy, leave_at=4, enter_at=2)
    for _ in range(200):
        rig.assign()
        assert rig.in_flight(SPECULATIVE) <= 4
    assert (rig.in_flight(SPECULATIVE), rig.in_flight(BASELINE)) == (4, 196)


@pytest.mark.parametrize("policy", [Policy.THRESHOLD, Policy.OVERFLOW])
def test_a_backend_that_comes_back_while_requests_wait_gets_at_most_its_limit(policy: Policy) -> None:
    rig = Rig(policy=policy, leave_at=4, enter_at=2, limits=(4, 10))
    speculative = rig.desk.backend(SPECULATIVE)
    for _ in range(3):
        rig.desk.observe_health(speculative, Evidence.MISS)
    waiting = 300
    while rig.try_assign():
        waiting -= 1
    for _ in range(2):
        rig.desk.observe_health(speculative, Evidence.HIT)
    held = []
    for _ in range(3):
        while waiting and rig.try_assign():
            waiting -= 1
        held.append(rig.in_flight(SPECULATIVE))
        rig.now_s += 4.0
    assert (held, waiting) == ([1, 2, 4], 286)


def test_a_backend_whose_circuit_closes_gets_its_share_bit_by_bit(rig: Rig) -> None:
    rig.open_circuit(SPECULATIVE)
    rig.now_s += OPEN_S
    rig.finish(rig.assign(asked=SPECULATIVE))
    assert rig.desk.snapshot().speculative.recovered_s == 0.0


def test_a_backend_that_was_never_down_is_not_recovering(rig: Rig) -> None:
    rig.desk.observe_health(rig.desk.backend(SPECULATIVE), Evidence.HIT)
    assert rig.desk.snapshot().speculative.recovered_s is None


def test_no_place_is_given_above_max_in_flight() -> None:
    rig = Rig(limits=(2, 3))
    places = [rig.try_assign() for _ in range(6)]
    assert [place is not None for place in places] == [True] * 5 + [False]


def test_a_refusal_names_full_and_leases_nothing() -> None:
    rig = Rig(limits=(1, 1))
    rig.assign(), rig.assign()
    refusal = rig.desk.assign(Traits(), "id", "/generate")
    assert not isinstance(refusal, Assignment)
    assert (refusal.role, refusal.reason) == (None, Reason.FULL)
    assert len(rig.desk.ring) == rig.desk.snapshot().in_flight == 2


def test_a_failed_request_never_goes_back_to_its_engine_though_the_two_have_changed_places(rig: Rig) -> None:
    failed = rig.assign()
    rig.finish(failed, Event.FAILURE)
    rig.desk.reload(plan(urls=("http://b", "http://a")))
    second = rig.assign(failed=failed.backend, attempt=2)
    assert (failed.backend.url, second.backend.url) == ("http://a", "http://b")
    assert rig.desk.claims(Traits(), failed.backend) == {second.backend.role}


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("assign"), st.integers(1, 20)),
        st.tuples(st.just("settle"), st.integers(0, 1000)),
        st.tuples(st.just("leave"), st.integers(0, 1000)),
        st.tuples(st.just("wait"), st.floats(0, 20)),
        st.tuples(st.just("fail"), st.integers(0, 1000)),
    ),
    max_size=120,
)


@given(OPERATIONS, st.sampled_from([Policy.THRESHOLD, Policy.OVERFLOW, Policy.PINNED]))
def test_counts_stay_exact_and_within_limits_whatever_happens(
    operations: list[tuple[str, Any]], policy: Policy
) -> None:
    rig = Rig(limits=(8, 16), policy=policy, leave_at=6, enter_at=2)
    held: list[Assignment] = []
    lingering: list[tuple[float, Role, int]] = []
    for name, value in operations:
        if name == "wait":
            rig.now_s += value
        elif name == "assign":
            place = rig.try_assign(weight=value)
            held += [place] if place else []
        elif held:
            place = held.pop(value % len(held))
            if name == "leave":
                rig.desk.settle(place, Outcome.CLIENT_GONE_WAITING, unheard=True)
                role = place.backend.role
                there = sum(weight for until_s, on, weight in lingering if on is role and until_s > rig.now_s)
                most = {SPECULATIVE: 2, BASELINE: 4}[role]  # a quarter of the limit
                lingering.append((rig.now_s + LINGER_S, role, min(place.lease.weight, most - there)))
            else:
                rig.finish(place, Event.FAILURE if name == "fail" else Event.SUCCESS)
        for role, limit in zip(ROLES, (8, 16), strict=True):
            weights = [place.lease.weight for place in held if place.backend.role is role]
            ghosts = [weight for expiry_s, on, weight in lingering if on is role and expiry_s > rig.now_s]
            in_flight = rig.in_flight(role)
            assert in_flight == sum(weights) + sum(ghosts)
            assert in_flight <= limit


def test_the_ring_keeps_the_decision_with_its_numbers(rig: Rig) -> None:
    rig.assign(weight=3)
    rig.assign(weight=2, failed=rig.desk.backend(SPECULATIVE), attempt=2)
    first, second = rig.desk.ring
    assert (first.weight, first.attempt, first.at_s, first.route) == (3, 1, rig.now_s, "/v1/completions")
    assert (second.attempt, second.decision.reason) == (2, Reason.FAILOVER)
    assert second.decision.because.speculative_in_flight == 3


def test_a_promised_backend_counts_as_full(rig: Rig) -> None:
    rig.assign()
    place = rig.assign(promised=frozenset({SPECULATIVE}))
    assert (place.decision.role, place.decision.reason) == (BASELINE, Reason.OTHER_FULL)


def test_a_promised_backend_counts_as_full_also_while_it_lies_idle(rig: Rig) -> None:
    assert rig.try_assign(promised=frozenset(ROLES)) is None


def test_a_request_holds_and_leaves_behind_no_more_than_its_engine_runs_at_once() -> None:
    rig = Rig(limits=(64, 64))
    for role in ROLES:
        place = rig.assign(weight=1024, asked=role)
        assert rig.in_flight(role) == 64
        rig.desk.settle(place, Outcome.CLIENT_GONE_WAITING, unheard=True)
        assert rig.in_flight(role) == 16
    rig.now_s += LINGER_S
    assert rig.desk.snapshot().in_flight == 0


@pytest.mark.parametrize(
    ("weight", "asked", "down", "claims"),
    [
        (1, None, (), ROLES),
        (8, None, (), ROLES),
        (9, None, (), ROLES),  # bulky on one of the two only
        (9, SPECULATIVE, (), ()),
        (9, BASELINE, (), (BASELINE,)),
        (9, None, (BASELINE,), ()),
        (9, None, ROLES, ROLES),
        (33, None, (), ()),
    ],
)
def test_a_waiter_claims_what_it_waits_for_unless_it_is_bulky_wherever_it_may_go(
    weight: int, asked: Role | None, down: tuple[Role, ...], claims: tuple[Role, ...]
) -> None:
    rig = Rig(limits=(16, 64))
    for role in down:
        rig.desk.observe_health(rig.desk.backend(role), Evidence.MISS)
    assert rig.desk.claims(Traits(weight=weight, asked=asked)) == frozenset(claims)


@pytest.mark.parametrize(
    ("asked", "down", "wanted"),
    [
        (None, (), None),
        (SPECULATIVE, (), SPECULATIVE),
        (SPECULATIVE, (SPECULATIVE,), BASELINE),
        (SPECULATIVE, (BASELINE,), SPECULATIVE),
        (SPECULATIVE, ROLES, SPECULATIVE),
    ],
)
def test_a_request_waits_for_the_backend_that_would_serve_it(
    rig: Rig, asked: Role | None, down: tuple[Role, ...], wanted: Role | None
) -> None:
    for role in down:
        rig.desk.observe_health(rig.desk.backend(role), Evidence.MISS)
    assert rig.desk.wanted(Traits(asked=asked)) is wanted


# ---------------------------------------------------------------- regimes


def hold(rig: Rig, count: int, held: list[Assignment]) -> None:
    """Bring the number in flight to `count`."""
    while len(held) < count:
        held.append(rig.assign())
    while len(held) > count:
        rig.finish(held.pop())


def test_every_change_of_regime_is_announced_once() -> None:
    rig = Rig(policy=Policy.THRESHOLD, leave_at=4, enter_at=2, min_dwell_s=1.0)
    held: list[Assignment] = []
    for count in (6, 1, 6, 1):
        hold(rig, count, held)
        rig.now_s += 1.0
        rig.desk.follow()
        rig.desk.follow()
    regimes = [(change.before, change.after) for change in rig.changes if change.kind is ChangeKind.REGIME]
    assert regimes == [(SPECULATIVE, BASELINE), (BASELINE, SPECULATIVE)] * 2


def test_no_regime_changes_within_the_dwell_on_a_walk_around_the_threshold() -> None:
    """Case H35: ten minutes of 3, 4, 5, 4, 5, 4 around a threshold, and a square wave."""
    rig = Rig(policy=Policy.THRESHOLD, leave_at=5, enter_at=4, min_dwell_s=10.0)
    held: list[Assignment] = []
    seen: list[float] = []
    rig.desk.on_change = lambda change: seen.append(rig.now_s)
    for step in range(600):
        hold(rig, (3, 4, 5, 4)[step % 4] if step < 300 else 12 * (step // 10 % 2), held)
        rig.now_s += 1.0
    assert seen
    assert all(later - sooner >= 10.0 for sooner, later in pairwise(seen))


def test_a_walk_between_the_thresholds_changes_nothing() -> None:
    rig = Rig(policy=Policy.THRESHOLD, leave_at=9, enter_at=5, min_dwell_s=0.0)
    held: list[Assignment] = []
    for step in range(600):
        hold(rig, (3, 4, 5, 4, 8)[step % 5], held)
        rig.now_s += 1.0
    assert not rig.changes


def test_a_burst_that_is_over_leaves_the_regime_by_itself() -> None:
    rig = Rig(policy=Policy.THRESHOLD, leave_at=9, enter_at=5, smoothing_s=2.0)
    held: list[Assignment] = []
    hold(rig, 100, held)
    rig.now_s += 3.0
    hold(rig, 0, held)
    assert rig.desk.regime.role is BASELINE
    rig.now_s += 30.0
    rig.desk.follow()
    assert (rig.desk.regime.role, round(rig.desk.regime.smoothed, 3)) == (SPECULATIVE, 0.0)


def test_sequences_that_linger_weigh_in_the_smoothed_count_no_longer_than_they_linger() -> None:
    """Twelve clients leave early, a minute of calm follows: the next request must not find a smoothed twelve."""
    rig = Rig(policy=Policy.THRESHOLD, leave_at=9, enter_at=5, smoothing_s=2.0, min_dwell_s=0.0)
    for place in [rig.assign() for _ in range(12)]:
        rig.desk.settle(place, Outcome.CLIENT_GONE_WAITING, unheard=True)
    rig.now_s += 60.0
    place = rig.assign()
    assert (place.decision.role, round(place.decision.because.smoothed, 3)) == (SPECULATIVE, 0.0)


# ---------------------------------------------------------------- judging


def test_failures_in_a_row_open_the_circuit_and_it_is_announced(rig: Rig) -> None:
    rig.open_circuit(SPECULATIVE)
    assert rig.changes == [Change(ChangeKind.CIRCUIT, SPECULATIVE, "closed", "open")]
    assert rig.assign().decision.reason is Reason.ONLY_ELIGIBLE


def test_clients_errors_between_failures_neither_open_nor_heal(rig: Rig) -> None:
    """Case H12."""
    for _ in range(4):
        rig.finish(rig.assign(asked=SPECULATIVE), Event.FAILURE)
        for _ in range(50):
            rig.finish(rig.assign(asked=SPECULATIVE), Event.NEUTRAL)
    assert rig.desk.backend(SPECULATIVE).circuit.state is CircuitState.CLOSED
    rig.finish(rig.assign(asked=SPECULATIVE), Event.FAILURE)
    assert rig.desk.backend(SPECULATIVE).circuit.state is CircuitState.OPEN


def test_one_probe_at_a_time_tries_a_backend_whose_circuit_was_open(rig: Rig) -> None:
    rig.open_circuit(SPECULATIVE)
    rig.now_s += OPEN_S
    places = [rig.assign(asked=SPECULATIVE) for _ in range(20)]
    assert [place.probe for place in places] == [True] + [False] * 19
    assert [place.decision.role for place in places] == [SPECULATIVE] + [BASELINE] * 19


def test_a_probe_that_succeeds_closes_the_circuit(rig: Rig) -> None:
    rig.open_circuit(SPECULATIVE)
    rig.now_s += OPEN_S
    rig.finish(rig.assign(asked=SPECULATIVE))
    assert [change.after for change in rig.changes] == ["open", "half_open", "closed"]


def test_a_probe_whose_client_left_before_it_was_sent_frees_its_place(rig: Rig) -> None:
    rig.open_circuit(SPECULATIVE)
    rig.now_s += OPEN_S
    rig.desk.take_back(rig.assign(asked=SPECULATIVE))
    assert rig.assign(asked=SPECULATIVE).probe


def end_cancelled(rig: Rig, probe: Assignment) -> None:
    rig.desk.judge(probe, Event.NEUTRAL)
    rig.desk.settle(probe, Outcome.CLIENT_GONE_WAITING, unheard=True)


def end_client_error(rig: Rig, probe: Assignment) -> None:
    rig.finish(probe, Event.NEUTRAL)


def end_hanging(rig: Rig, probe: Assignment) -> None:
    pass


def end_refused(rig: Rig, probe: Assignment) -> None:
    rig.finish(probe, Event.FAILURE)


@pytest.mark.parametrize("end", [end_cancelled, end_client_error, end_hanging, end_refused])
def test_a_healed_backend_serves_again_within_two_cool_downs_however_its_probe_ends(rig: Rig, end: Any) -> None:
    """Case H14: nothing that becomes of a probe keeps the circuit from healing."""
    rig.open_circuit(SPECULATIVE)
    opened_s = rig.now_s
    rig.now_s += OPEN_S
    end(rig, rig.assign(asked=SPECULATIVE))
    while rig.desk.backend(SPECULATIVE).circuit.state is not CircuitState.CLOSED:
        assert rig.now_s <= opened_s + 2 * OPEN_S
        rig.finish(rig.assign(asked=SPECULATIVE))
        rig.now_s += 0.25
    assert rig.assign(asked=SPECULATIVE).decision.role is SPECULATIVE


def test_a_late_failure_of_an_outage_says_nothing_of_the_healed_backend(rig: Rig) -> None:
    late = [rig.assign(asked=SPECULATIVE) for _ in range(5)]
    rig.now_s += 1
    rig.open_circuit(SPECULATIVE)
    rig.now_s += OPEN_S
    rig.finish(rig.assign(asked=SPECULATIVE))
    for place in late:
        rig.finish(place, Event.FAILURE)
    assert rig.desk.backend(SPECULATIVE).circuit.state is CircuitState.CLOSED


def test_a_backend_that_fails_fast_does_not_look_idle(rig: Rig) -> None:
    """Failures between successes never open the circuit, and still weigh as load for a while."""
    for _ in range(9):
        rig.finish(rig.assign(asked=SPECULATIVE), Event.FAILURE)
        rig.finish(rig.assign(asked=SPECULATIVE))
    assert rig.in_flight(SPECULATIVE) == 0
    assert rig.assign().decision.role is BASELINE
    rig.now_s += 60.0
    assert rig.assign().decision.role is SPECULATIVE


# ---------------------------------------------------------------- retries


def test_retries_are_a_share_of_the_requests_once_the_reserve_is_spent() -> None:
    rig = Rig()
    assert sum(rig.desk.may_retry() for _ in range(50)) == 10
    taken = 0
    for _ in range(1000):
        rig.finish(rig.assign())
        taken += rig.desk.may_retry()
    assert taken == 100


def test_second_attempts_earn_no_further_retries() -> None:
    rig = Rig()
    while rig.desk.may_retry():
        pass
    for _ in range(100):
        rig.finish(rig.assign(failed=rig.desk.backend(SPECULATIVE), attempt=2))
    assert not rig.desk.may_retry()


def test_those_who_leave_again_and_again_do_not_fill_the_count(rig: Rig) -> None:
    rig = Rig(limits=(8, 8))
    for _ in range(20):
        place = rig.assign(asked=SPECULATIVE)
        rig.desk.settle(place, Outcome.CLIENT_GONE_WAITING, unheard=True)
    assert rig.in_flight(SPECULATIVE) == 2


# ---------------------------------------------------------------- policies on curves

NEVER = of_both({1: 50.0, 8: 300.0}, {1: 52.0, 8: 310.0})


def test_a_desk_begins_with_the_role_that_serves_a_lone_request_sooner() -> None:
    rig = Rig(policy=Policy.CONSOLIDATE, curves=NEVER, allow_header=False)
    assert rig.assign().backend.role is BASELINE
    assert rig.changes == []


@pytest.mark.parametrize(("placement", "claims"), [(Placement.SHARED, (BASELINE,)), (Placement.SEPARATE, ROLES)])
def test_who_waits_for_the_favoured_one_alone_keeps_no_room_of_the_other(
    placement: Placement, claims: tuple[Role, ...]
) -> None:
    rig = Rig(limits=(2, 2), policy=Policy.CONSOLIDATE, curves=NEVER, placement=placement)
    for _ in range(2):
        assert rig.assign().backend.role is BASELINE
    assert rig.desk.claims(Traits()) == frozenset(claims)


def test_a_reload_to_consolidate_favours_the_sooner_one_at_once_and_a_later_one_keeps_its_regime() -> None:
    rig = Rig(policy=Policy.OVERFLOW)
    held = rig.assign(3)
    rig.desk.reload(plan(policy=Policy.CONSOLIDATE, curves=NEVER))
    assert [(change.kind, change.after) for change in rig.changes] == [(ChangeKind.REGIME, BASELINE)]
    assert rig.desk.regime.held == 3
    rig.assign()
    asked = rig.desk.regime.demand
    assert asked.tok_s > 0
    rig.desk.reload(plan(policy=Policy.CONSOLIDATE, curves=of_both({1: 52.0}, {1: 50.0})))
    assert (rig.desk.regime.role, rig.desk.regime.demand) == (BASELINE, asked)
    rig.finish(held)

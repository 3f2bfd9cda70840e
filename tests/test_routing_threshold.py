"""Policy `threshold`: smoothing, hysteresis, dwell, and what happens over minutes of simulated time."""

from itertools import cycle, islice, pairwise
from math import exp, inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.model import BackendLoad, LoadSnapshot, Policy, Reason, Regime, Role, Traits
from proxy.routing.policy import decide, follow
from proxy.routing.rules import Rules
from proxy.routing.threshold import NEAR, prefer

SPECULATIVE, BASELINE = Role.SPECULATIVE, Role.BASELINE


def switching(leave_at: int = 9, enter_at: int = 5, *, dwell_s: float = 2.0, smoothing_s: float = 2.0) -> Rules:
    return Rules(
        policy=Policy.THRESHOLD, leave_at=leave_at, enter_at=enter_at, min_dwell_s=dwell_s, smoothing_s=smoothing_s
    )


def observe(regime: Regime, in_flight: int, now_s: float, smoothing_s: float) -> Regime:
    """What a policy that never switches makes of a count."""
    return follow(Rules(policy=Policy.OVERFLOW, smoothing_s=smoothing_s), regime, in_flight, now_s)


def advance(rules: Rules, regime: Regime, now_s: float) -> Regime:
    """A look at a smoothed count that is as new as it can be."""
    return follow(rules, regime._replace(smoothed_at_s=now_s), 0, now_s)


def changes(rules: Rules, walk: list[tuple[float, int]]) -> tuple[Regime, list[float]]:
    """The last regime of a walk of (instant, in flight), and the instants at which the role changed."""
    regime, at = Regime(), []
    for now_s, in_flight in walk:
        after = follow(rules, regime, in_flight, now_s)
        if after.role is not regime.role:
            at.append(now_s)
        regime = after
    return regime, at


# ---------------------------------------------------------------- smoothing


def test_the_first_observation_sets_the_smoothed_count() -> None:
    assert observe(Regime(), 7, 100.0, 2.0) == Regime(SPECULATIVE, -inf, 7.0, 100.0, 7)


def test_smoothed_moves_towards_the_count_held_not_towards_the_new_one() -> None:
    regime = observe(observe(Regime(), 0, 0.0, 2.0), 10, 0.0, 2.0)
    assert observe(regime, 99, 2.0, 2.0).smoothed == pytest.approx(10 * (1 - exp(-1)))


def test_without_smoothing_the_count_itself_counts() -> None:
    regime = observe(observe(Regime(), 3, 0.0, 0.0), 8, 0.0, 0.0)
    assert regime.smoothed == 8
    assert observe(regime, 2, 0.1, 0.0).smoothed == 2


def test_time_that_goes_backwards_stands_still() -> None:
    regime = observe(observe(Regime(), 4, 10.0, 2.0), 8, 10.0, 2.0)
    back = observe(regime, 6, 5.0, 2.0)
    assert (back.smoothed, back.smoothed_at_s, back.held) == (4.0, 10.0, 6)


@given(st.floats(0.1, 30), st.integers(0, 50), st.integers(0, 50), st.lists(st.floats(0, 60), max_size=8))
def test_observing_a_steady_count_more_often_changes_nothing(
    smoothing_s: float, first: int, held: int, between: list[float]
) -> None:
    start = observe(observe(Regime(), first, 0.0, smoothing_s), held, 0.0, smoothing_s)
    often = start
    for now_s in sorted(between):
        often = observe(often, held, now_s, smoothing_s)
    once = observe(start, held, 60.0, smoothing_s)
    assert observe(often, held, 60.0, smoothing_s).smoothed == pytest.approx(once.smoothed, abs=1e-9)


@given(st.floats(0, 30), st.lists(st.tuples(st.floats(0, 5), st.integers(0, 50)), min_size=1, max_size=50))
def test_smoothed_stays_between_the_least_and_the_greatest_count(
    smoothing_s: float, steps: list[tuple[float, int]]
) -> None:
    regime, now_s = Regime(), 0.0
    for pause_s, in_flight in steps:
        now_s += pause_s
        regime = observe(regime, in_flight, now_s, smoothing_s)
    seen = [in_flight for _, in_flight in steps]
    assert min(seen) - 1e-9 <= regime.smoothed <= max(seen) + 1e-9


# ---------------------------------------------------------------- hysteresis and dwell


def test_the_regime_changes_at_its_thresholds_and_not_between_them() -> None:
    rules = switching(9, 5)
    for smoothed in (0.0, 5.0, 5.3, 8.0, 8.7):
        assert advance(rules, Regime(SPECULATIVE, 0.0, smoothed), 10.0).role is SPECULATIVE
    for smoothed in (9.0, 8.9, 30.0):
        assert advance(rules, Regime(SPECULATIVE, 0.0, smoothed), 10.0).role is BASELINE
    for smoothed in (30.0, 9.0, 8.9, 6.0, 5.3):
        assert advance(rules, Regime(BASELINE, 0.0, smoothed), 10.0).role is BASELINE
    for smoothed in (5.2, 5.0, 0.0):
        assert advance(rules, Regime(BASELINE, 0.0, smoothed), 10.0).role is SPECULATIVE


def test_the_regime_holds_while_the_dwell_has_not_passed() -> None:
    rules = switching(dwell_s=2.0)
    assert advance(rules, Regime(SPECULATIVE, 10.0, 50.0), 11.9).role is SPECULATIVE
    assert advance(rules, Regime(SPECULATIVE, 10.0, 50.0), 12.0) == Regime(BASELINE, 12.0, 50.0, 12.0)
    assert advance(rules, Regime(SPECULATIVE, 10.0, 50.0), 9.0).role is SPECULATIVE


@given(st.integers(1, 40), st.floats(0, 50))
def test_no_count_satisfies_both_thresholds_even_when_they_are_neighbours(leave_at: int, smoothed: float) -> None:
    rules = switching(leave_at, leave_at - 1)
    left = advance(rules, Regime(SPECULATIVE, 0.0, smoothed), 10.0)
    if left.role is BASELINE:
        assert advance(rules, left, 100.0).role is BASELINE
    assert 2 * NEAR < 1


@given(
    st.integers(1, 12),
    st.sampled_from([0.0, 0.3, 2.0]),
    st.floats(0.1, 20),
    st.lists(st.tuples(st.floats(-0.5, 5), st.integers(0, 30)), max_size=100),
)
def test_no_regime_change_comes_within_the_dwell_over_random_walks(
    leave_at: int, smoothing_s: float, dwell_s: float, steps: list[tuple[float, int]]
) -> None:
    now_s, walk = 0.0, []
    for pause_s, in_flight in steps:
        now_s += pause_s
        walk.append((now_s, in_flight))
    _, at = changes(switching(leave_at, leave_at - 1, dwell_s=dwell_s, smoothing_s=smoothing_s), walk)
    assert all(later - earlier >= dwell_s for earlier, later in pairwise(at))


# ---------------------------------------------------------------- minutes of traffic


def every(step_s: float, counts: list[int], for_s: float = 600.0) -> list[tuple[float, int]]:
    return [(step * step_s, count) for step, count in enumerate(islice(cycle(counts), int(for_s / step_s)))]


@pytest.mark.parametrize("step_s", [0.1, 0.5, 1.0])
@pytest.mark.parametrize(("enter_at", "leave_at"), [(4, 5), (3, 5), (3, 4), (5, 9)])
def test_a_walk_around_a_threshold_does_not_oscillate(step_s: float, enter_at: int, leave_at: int) -> None:
    _, at = changes(switching(leave_at, enter_at), every(step_s, [3, 4, 5, 4, 5]))
    assert len(at) <= 1


def test_a_slow_square_wave_changes_the_regime_once_per_half_wave() -> None:
    _, at = changes(switching(9, 5), every(1.0, [2] * 10 + [30] * 10))
    assert len(at) == pytest.approx(60, abs=2)
    assert all(later - earlier >= 2.0 for earlier, later in pairwise(at))


def test_a_fast_square_wave_around_the_band_changes_nothing() -> None:
    _, at = changes(switching(9, 5), every(0.2, [4, 10]))
    assert at == []


def test_one_burst_then_silence_comes_back_to_speculative() -> None:
    regime, at = changes(switching(9, 5), [(0.0, 0), (1.0, 100), (1.5, 100), (2.0, 0), *every(1.0, [0], 60.0)[3:]])
    assert (regime.role, len(at)) == (SPECULATIVE, 2)


def test_never_speculating_stays_at_baseline_when_leave_at_is_nought() -> None:
    regime, at = changes(switching(0, -1), every(1.0, [0, 1, 5, 0], 60.0))
    assert (regime.role, at) == (BASELINE, [0.0])


def closed_loop(rules: Rules, clients: int, *, for_s: float = 60.0, answer_s: float = 1.0) -> list[Role | None]:
    """Clients that each send again 2 ms after their answer, through decide and follow; the roles in order."""
    regime, flying = Regime(), {SPECULATIVE: 0, BASELINE: 0}
    roles: list[Role | None] = []
    events: list[tuple[float, int, Role | None]] = sorted(
        (client * answer_s / clients, client, None) for client in range(clients)
    )
    while events and events[0][0] < for_s:
        now_s, client, role = events.pop(0)
        if role is None:
            loads = LoadSnapshot(
                now_s, BackendLoad(SPECULATIVE, flying[SPECULATIVE]), BackendLoad(BASELINE, flying[BASELINE])
            )
            decision = decide(rules, regime, loads, Traits())
            regime, role = decision.regime, decision.role
            assert role is not None
            roles.append(role)
            flying[role] += 1
            events.append((now_s + answer_s, client, role))
        else:
            flying[role] -= 1
            regime = follow(rules, regime, sum(flying.values()), now_s)
            events.append((now_s + 0.002, client, None))
        events.sort(key=lambda event: event[:2])
    return roles


@pytest.mark.parametrize("smoothing_s", [0.0, 2.0])
@pytest.mark.parametrize("clients", [9, 10, 32])
def test_a_closed_loop_at_or_above_leave_at_ends_on_baseline(clients: int, smoothing_s: float) -> None:
    assert set(closed_loop(switching(9, 5, smoothing_s=smoothing_s), clients)[-clients:]) == {BASELINE}


@pytest.mark.parametrize("smoothing_s", [0.0, 2.0])
@pytest.mark.parametrize("clients", [1, 5, 8])
def test_a_closed_loop_below_leave_at_stays_on_speculative(clients: int, smoothing_s: float) -> None:
    assert set(closed_loop(switching(9, 5, smoothing_s=smoothing_s), clients)) == {SPECULATIVE}


# ---------------------------------------------------------------- within a regime


def test_the_favoured_role_gets_the_request() -> None:
    loads = BackendLoad(SPECULATIVE, 3)
    assert prefer(switching(), Regime(SPECULATIVE), loads, 1) == (SPECULATIVE, Reason.REGIME)
    assert prefer(switching(), Regime(BASELINE), loads, 1) == (BASELINE, Reason.REGIME)


def test_a_burst_within_the_dwell_goes_over_to_baseline_without_a_regime_change() -> None:
    regime = Regime(SPECULATIVE, 0.0, 1.0, 1.0, 9.0)
    loads = LoadSnapshot(1.0, BackendLoad(SPECULATIVE, 9), BackendLoad(BASELINE, 0))
    decision = decide(switching(), regime, loads, Traits())
    assert (decision.role, decision.reason) == (BASELINE, Reason.OVERFLOW)
    assert decision.regime.role is SPECULATIVE


def test_failures_in_a_moment_turn_requests_away_from_an_empty_speculative_backend() -> None:
    assert prefer(switching(), Regime(), BackendLoad(SPECULATIVE, 0, None, 9), 1) == (BASELINE, Reason.OVERFLOW)

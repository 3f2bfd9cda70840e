"""Policy `consolidate`: who is favoured at what demand, how seldom that changes, and what never happens."""

from itertools import pairwise
from math import exp, inf, log

import pytest
from fakes.speeds import TABLES, Table, any_curves, bucket, curves, of_both, speed_curve
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.model import (
    BASELINE,
    NO_DEMAND,
    ROLES,
    SPECULATIVE,
    BackendLoad,
    Decision,
    Demand,
    LoadSnapshot,
    Placement,
    Policy,
    Reason,
    Regime,
    Role,
    Traits,
)
from proxy.routing.consolidate import CALM_S, LOOK_S, MIN_GAIN, STANDS_S, crowding, first_role, reach
from proxy.routing.curves import Curves
from proxy.routing.demand import DEMAND_S, PEAK_S, arrived
from proxy.routing.lasting import LONGEST_S
from proxy.routing.marginal import EXPECTED_TOKENS
from proxy.routing.paces import OVERLOADED_S, Paces
from proxy.routing.policy import decide, decide_by_counts, follow
from proxy.routing.rules import CONSOLIDATED_S, Rules

# Speculation wins alone, and again where demand is more than the baseline gives; the baseline wins between.
OURS: Table = {1: 60.0, 2: 60.0, 16: 470.0}
THEIRS: Table = {1: 40.0, 8: 310.0, 16: 350.0}
TWICE = of_both(OURS, THEIRS)


def shared(measured: Curves, **more: object) -> Rules:
    return Rules(Policy.AUTO, Placement.SHARED, curves=measured, **more)  # type: ignore[arg-type]


def fresh(rules: Rules, at_s: float = 0.0) -> Regime:
    """As the desk begins."""
    return Regime(first_role(rules), at_s - rules.dwell_s, smoothed_at_s=at_s)


def snapshot(at_s: float, speculative: int = 0, baseline: int = 0, failures: tuple[int, int] = (0, 0)) -> LoadSnapshot:
    first = BackendLoad(SPECULATIVE, speculative, None, failures[0])
    return LoadSnapshot(at_s, first, BackendLoad(BASELINE, baseline, None, failures[1]))


def looked(rules: Rules, regime: Regime, in_flight: int, now_s: float) -> Regime:
    """What a look makes of `regime`, and where it finds a change due the same look once it has been so for long."""
    found = follow(rules, regime, in_flight, now_s)
    if found.demand.due_at_s == inf:
        return found
    return follow(rules, regime._replace(demand=regime.demand._replace(due_at_s=-inf)), in_flight, now_s)


def at_demand(rules: Rules, tok_s: float, role: Role) -> Role:
    """Who is favoured when nothing is in flight and the dwell is long over."""
    regime = Regime(role, -1000.0, 0.0, 0.0, 0.0, Demand(tok_s, 1024.0))
    return looked(rules, regime, 0, 0.0).role


# ---------------------------------------------------------------- who is favoured


@settings(max_examples=300)
@given(any_curves(), st.floats(0.1, 6000.0), st.sampled_from(ROLES), st.integers(0, 150_000))
def test_the_role_changes_where_the_other_serves_the_mean_sooner_by_a_fiftieth_and_no_end_of_it_later(
    measured: Curves, tok_s: float, role: Role, tokens: int
) -> None:
    rules = shared(measured)
    regime = Regime(role, -1000.0, 0.0, 0.0, 0.0, Demand(tok_s, tokens))
    context = measured.at_context(tokens)
    here, there = context.of(role), context.of(role.other)
    assert here is not None
    assert there is not None
    here_s, there_s = Paces(here).at_demand(tok_s), Paces(there).at_demand(tok_s)
    ends = reach(regime.demand, tok_s)
    firm = all(Paces(here).alone(end, 0.0) >= Paces(there).alone(end, 0.0) for end in ends)
    after = looked(rules, regime, 0, 0.0)
    assert (after.role is not role) == (firm and here_s >= (1 + MIN_GAIN) * there_s)
    assert after.since_s == (0.0 if after.role is not role else -1000.0)


@pytest.mark.parametrize(("tok_s", "favoured"), [(10, SPECULATIVE), (150, BASELINE), (400, SPECULATIVE)])
@pytest.mark.parametrize("role", ROLES)
def test_several_crossings_are_followed(tok_s: float, favoured: Role, role: Role) -> None:
    assert at_demand(shared(TWICE), tok_s, role) is favoured


def test_a_calm_is_not_followed_to_one_that_could_not_carry_the_last_peak_until_that_is_long_past() -> None:
    rules = shared(TWICE)
    regime = looked(rules, Regime(BASELINE, -1000.0, 0.0, 0.0, 0.0, Demand(150.0, 1024.0)), 0, 0.0)
    calm = regime._replace(demand=regime.demand._replace(tok_s=10.0, held=0.0, looked_at_s=-inf))
    assert at_demand(rules, 10.0, BASELINE) is SPECULATIVE
    assert looked(rules, calm, 0, 0.0).role is BASELINE
    # What the two would have held over the last half hour decides.
    for excess, favoured in ((1.0, BASELINE), (-1.0, SPECULATIVE)):
        lately = calm._replace(demand=calm.demand._replace(excess=excess))
        assert looked(rules, lately, 0, 0.0).role is favoured


def test_a_rise_to_what_the_favoured_one_cannot_carry_is_followed_whatever_the_peak_was() -> None:
    rules = shared(of_both({1: 60.0, 16: 300.0}, {1: 40.0, 16: 400.0}))
    for peak_tok_s in (0.0, 320.0, 1000.0):
        regime = Regime(SPECULATIVE, -1000.0, 0.0, 0.0, 0.0, Demand(320.0, 1024.0, 256.0, 0.0, peak_tok_s))
        assert looked(rules, regime, 0, 0.0).role is BASELINE


def test_the_bucket_is_the_one_of_the_mean_context_of_the_demand() -> None:
    rules = shared(curves(bucket({1: 90.0}, {1: 60.0}, 400), bucket({1: 30.0}, {1: 50.0}, 40_000)))
    for tokens, favoured in ((400.0, SPECULATIVE), (40_000.0, BASELINE)):
        regime = Regime(favoured.other, -1000.0, 0.0, 0.0, 0.0, Demand(20.0, tokens))
        assert looked(rules, regime, 0, 0.0).role is favoured


def test_a_change_is_made_once_it_was_due_at_every_look_for_so_long() -> None:
    rules, looks = shared(TWICE), [quarter * LOOK_S for quarter in range(13)]

    def roles(tok_s: list[float]) -> list[Role]:
        """Who is favoured at each look, with so much asked for."""
        regime, told = Regime(SPECULATIVE, -1000.0, 0.0, 0.0, 0.0, Demand(10.0, 1024.0)), []
        for now_s, asked in zip(looks, tok_s, strict=True):
            demand = regime.demand._replace(tok_s=asked, lasting_tok_s=asked)
            regime = follow(rules, regime._replace(demand=demand, smoothed_at_s=now_s), 0, now_s)
            told.append(regime.role)
        return told

    due, calm = 150.0, 10.0
    assert roles([due] * 13).index(BASELINE) == STANDS_S / LOOK_S
    assert roles([due] * 2 + [calm] + [due] * 10).index(BASELINE) == 3 + STANDS_S / LOOK_S
    assert BASELINE not in roles(([due] * 2 + [calm]) * 4 + [calm])
    assert BASELINE not in roles([due] + [1000.0] * 12), "of a demand beyond both the favoured one gives more"
    assert BASELINE not in roles([1000.0] * 13)
    sinking = [due - number for number in range(13)]  # as a mean does from one request to the next
    assert roles(sinking).index(BASELINE) == STANDS_S / LOOK_S, "and it need not be a new height at each"


def test_a_change_that_costs_more_than_it_saves_is_not_made() -> None:
    rules = shared(of_both({1: 50.0, 64: 800.0}, {1: 60.0, 64: 1000.0}))
    regime = Regime(SPECULATIVE, -1000.0, 0.0, 0.0, 0.0, Demand(20.0, 1024.0, 256.0))
    # Saved in ten minutes: 20 tok/s x (1/50 - 1/60) s x 600 s = 40 s. Each in flight waits 256 x 1/60 s: 4.27 s.
    assert looked(rules, regime._replace(smoothed=8.0), 0, 0.0).role is BASELINE
    assert looked(rules, regime._replace(smoothed=16.0), 0, 0.0).role is SPECULATIVE


def test_a_change_costs_less_where_answers_are_short() -> None:
    rules = shared(of_both({1: 50.0, 64: 800.0}, {1: 60.0, 64: 1000.0}))
    regime = Regime(SPECULATIVE, -1000.0, 10.0, 0.0, 10.0, Demand(20.0, 1024.0, 20.0))
    assert looked(rules, regime, 0, 0.0).role is BASELINE


def lower(table: dict[float, float], shares: list[float]) -> dict[float, float]:
    return {n: speed * share for (n, speed), share in zip(sorted(table.items()), shares, strict=False)}


LOWER = st.lists(st.floats(0.05, 0.99), min_size=7, max_size=7)
ARRIVALS = st.lists(
    st.tuples(st.sampled_from([0.0, 0.01, 0.3, 2.0, 10.0, 61.0]), st.integers(1, 40)), min_size=1, max_size=60
)


def driven(rules: Rules, arrivals: list[tuple[float, int]]) -> list[tuple[float, Decision]]:
    """Decisions over a minute or more: each request stays for ten arrivals."""
    regime, now_s = fresh(rules), 0.0
    flying: list[tuple[Role, int]] = []
    told = []
    for wait_s, weight in arrivals:
        now_s += wait_s
        ours, theirs = (sum(each for role, each in flying if role is one) for one in ROLES)
        decision = decide(rules, regime, snapshot(now_s, ours, theirs), Traits(weight=weight, prompt_bytes=4000))
        assert decision.role is not None
        regime = decision.regime
        flying = [*flying, (decision.role, weight)][-10:]
        told.append((now_s, decision))
    return told


@settings(max_examples=200)
@given(TABLES, LOWER, ARRIVALS)
def test_where_speculation_is_never_faster_it_is_never_favoured(
    table: dict[float, float], shares: list[float], arrivals: list[tuple[float, int]]
) -> None:
    table = {1.0: 50.0, **table}
    rules = shared(of_both(lower(table, shares), table))
    assert first_role(rules) is BASELINE
    assert all(decision.role is BASELINE for _, decision in driven(rules, arrivals))


@settings(max_examples=200)
@given(any_curves(), ARRIVALS, st.sampled_from([0.0, 2.0, 90.0]))
def test_the_regime_changes_at_most_once_a_dwell_whatever_arrives(
    measured: Curves, arrivals: list[tuple[float, int]], min_dwell_s: float
) -> None:
    rules = shared(measured, min_dwell_s=min_dwell_s)
    told = driven(rules, arrivals)
    roles = [first_role(rules), *(decision.regime.role for _, decision in told)]
    at_s = [now_s for (now_s, _), (one, other) in zip(told, pairwise(roles), strict=True) if one is not other]
    assert all(later - earlier >= max(CONSOLIDATED_S, min_dwell_s) for earlier, later in pairwise(at_s))
    assert all((decision.role, decision.reason) == (decision.because.regime, Reason.REGIME) for _, decision in told)


@pytest.mark.parametrize(
    ("waited_s", "min_dwell_s", "changed"), [(59.9, 2.0, False), (60.0, 2.0, True), (89.0, 90.0, False)]
)
def test_the_dwell_is_a_minute_or_what_was_asked_for(waited_s: float, min_dwell_s: float, changed: bool) -> None:
    regime = Regime(SPECULATIVE, 0.0, 0.0, waited_s, 0.0, Demand(150.0, 1024.0))
    after = looked(shared(TWICE, min_dwell_s=min_dwell_s), regime, 0, waited_s)
    assert (after.role is BASELINE) is changed


@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(st.sampled_from([0.1, 5.0, 20.0, 40.0, 61.0]), st.sampled_from([10.0, 150.0, 400.0])), max_size=60
    )
)
def test_no_walk_of_demand_over_several_crossings_changes_the_regime_twice_in_a_dwell(
    walk: list[tuple[float, float]],
) -> None:
    rules, now_s, at_s = shared(TWICE), 0.0, []
    regime = fresh(rules)
    for wait_s, tok_s in walk:
        now_s += wait_s
        after = follow(rules, regime._replace(demand=Demand(tok_s, 1024.0), smoothed_at_s=now_s), 0, now_s)
        at_s += [now_s] if after.role is not regime.role else []
        regime = after
    assert all(later - earlier >= CONSOLIDATED_S for earlier, later in pairwise(at_s))


def test_only_what_was_placed_counts_as_demand() -> None:
    rules = shared(TWICE)
    full = LoadSnapshot(0.0, BackendLoad(SPECULATIVE, 4, 4), BackendLoad(BASELINE, 4, 4))
    assert decide(rules, fresh(rules), full, Traits()).regime.demand == NO_DEMAND
    again = decide(rules, fresh(rules), snapshot(0.0), Traits(), excluded=SPECULATIVE)
    assert again.regime.demand == NO_DEMAND, "a second attempt is the same request"
    assert decide(rules, fresh(rules), snapshot(0.0), Traits()).regime.demand.tok_s > 0


# ---------------------------------------------------------------- what is in flight tells of demand, too


def test_more_in_flight_than_was_asked_for_explains_counts_as_demand() -> None:
    # Prefill takes its time, and no curve knows of it: 100 tok/s are asked for, and as many are in flight as at 300.
    rules = shared(of_both({1: 60.0, 16: 320.0}, {1: 40.0, 16: 640.0}))
    assert at_demand(rules, 20.0, SPECULATIVE) is SPECULATIVE
    held = Paces(speed_curve({1: 60.0, 16: 320.0})).at_demand(300.0) * 300.0
    regime = Regime(SPECULATIVE, -1000.0, 0.0, 0.0, 0.0, Demand(20.0, 1024.0))
    assert looked(rules, regime, 0, 0.0).role is SPECULATIVE
    assert looked(rules, regime._replace(demand=Demand(20.0, 1024.0, 0.0, held)), 0, 0.0).role is BASELINE


def test_what_is_in_flight_is_the_mean_of_the_same_time() -> None:
    rules = shared(TWICE)
    regime = fresh(rules)._replace(since_s=0.0, held=8.0, demand=Demand(10.0, 0.0, 0.0, 2.0, looked_at_s=0.0))
    assert follow(rules, regime, 0, DEMAND_S).demand.held == pytest.approx(8.0 - 6.0 * exp(-1.0))


def test_those_that_run_out_after_a_change_do_not_count_as_demand() -> None:
    rules = shared(TWICE)
    regime = Regime(SPECULATIVE, -1000.0, 0.0, 0.0, 0.0, Demand(150.0, 1024.0, 0.0, 5.0))
    after = looked(rules, regime, 0, 0.0)
    assert after.role is BASELINE
    asked = max(150.0, Paces(speed_curve(OURS)).demand_of(5.0))
    assert after.demand.held == pytest.approx(asked * Paces(speed_curve(THEIRS)).at_demand(asked))


# ---------------------------------------------------------------- the demand that lasts


def test_the_highest_demand_is_forgotten_slowly() -> None:
    rules = shared(TWICE)
    regime = fresh(rules)._replace(demand=Demand(1.0, 1024.0, 256.0, 0.0, 400.0, looked_at_s=0.0))
    assert follow(rules, regime, 0, PEAK_S).demand.peak_tok_s == pytest.approx(400.0 * exp(-1.0))


def paced(rules: Rules, regime: Regime, seconds: range, every_s: int, held: int) -> Regime:
    """A request of the expected length every so many seconds, with so many in flight."""
    for second in seconds:
        regime = follow(rules, regime, held, float(second))
        regime = arrived(regime, Traits(), EXPECTED_TOKENS) if second % every_s == 0 else regime
    return regime


def test_a_calm_is_followed_once_the_other_one_would_have_served_all_of_late_sooner() -> None:
    rules = shared(TWICE)
    busy = paced(rules, fresh(rules), range(60), 2, 3)
    assert busy.role is BASELINE
    calm = paced(rules, busy, range(60, 600), 20, 0)
    assert (calm.role, calm.demand.excess > 0.0) == (BASELINE, True), "all in all not yet"
    calm = paced(rules, calm, range(600, int(PEAK_S)), 20, 0)
    assert calm.role is SPECULATIVE
    assert calm.demand.peak_tok_s > 2.0 * calm.demand.lasting_tok_s, "and it is no new height of demand"


# ---------------------------------------------------------------- a rush is forgotten


@settings(max_examples=5, deadline=None)
@given(st.integers(1, 60), st.integers(5, 300), st.integers(10, 40), st.integers(0, 200))
def test_an_hour_after_the_means_of_any_rush_have_faded_a_calm_is_served_by_who_serves_it_sooner(
    requests: int, lasts_s: int, every_s: int, held: int
) -> None:
    rules = shared(CROSSED)
    regime = paced(rules, fresh(rules), range(300), every_s, 0)
    assert regime.role is SPECULATIVE
    for second in range(300, 300 + lasts_s):
        regime = follow(rules, regime, held, float(second))
        regime = arrived(regime, Traits(weight=requests), EXPECTED_TOKENS)
    over_s = 300 + lasts_s + 3 * int(LONGEST_S)
    regime = paced(rules, regime, range(300 + lasts_s, over_s), every_s, 0)
    regime = paced(rules, regime, range(over_s, over_s + int(2 * PEAK_S)), every_s, 0)
    assert regime.role is SPECULATIVE


def returns_after(excess: float, *, tok_s: float = 10.0, spread: float = 0.0) -> float:
    """Seconds until a calm after a peak, which goes on as it is, is served by speculation."""
    rules, now_s = shared(TWICE), 0.0
    demand = Demand(tok_s, 1024.0, 256.0, 0.0, 300.0, lasting_tok_s=tok_s, lasted_s=LONGEST_S, spread=spread)
    regime = Regime(BASELINE, -10_000.0, demand=demand._replace(excess=excess, looked_at_s=0.0))
    while regime.role is BASELINE and now_s < 4.0 * PEAK_S:
        now_s += 1.0
        seen = regime.demand._replace(tok_s=tok_s, lasting_tok_s=tok_s, held=0.0, flown=0.0, spread=spread)
        regime = follow(rules, regime._replace(demand=seen, smoothed_at_s=now_s), 0, now_s)
    return now_s


@settings(max_examples=5, deadline=None)
@given(st.floats(1e3, 1e5), st.floats(1.0, 20.0), st.sampled_from([0.0, 0.6]))
def test_a_rush_that_adds_up_more_holds_off_a_calm_by_the_logarithm_of_it(
    excess: float, times: float, spread: float
) -> None:
    assert returns_after(excess * times, spread=spread) <= returns_after(excess, spread=spread) + (
        CALM_S * log(times) + 2.0
    )


def test_what_was_before_is_not_forgotten_where_the_favoured_one_is_needed() -> None:
    rules = shared(TWICE)
    for tok_s, measured in ((150.0, rules), (10.0, shared(of_both({1: 60.0, 64: 640.0}, {1: 59.5, 64: 640.0})))):
        demand = Demand(tok_s, 1024.0, 256.0, excess=1e6, looked_at_s=0.0)
        after = follow(measured, Regime(BASELINE, 0.0, 0.0, 1.0, 0.0, demand), 0, 1.0).demand
        assert after.excess == pytest.approx(1e6 * exp(-1.0 / PEAK_S), abs=100.0), "less than a fiftieth is nothing"


def test_what_speaks_for_the_other_one_is_not_forgotten_sooner() -> None:
    demand = Demand(10.0, 1024.0, 256.0, excess=-1e6, looked_at_s=0.0)
    after = follow(shared(TWICE), Regime(BASELINE, 0.0, 0.0, 1.0, 0.0, demand), 0, 1.0).demand
    assert after.excess == pytest.approx(-1e6 * exp(-1.0 / PEAK_S), abs=100.0)


# ---------------------------------------------------------------- what the demand may be


def lasted(tok_s: float, since_s: float, **more: float) -> Demand:
    return Demand(tok_s, 1024.0, 256.0, lasting_tok_s=tok_s, lasted_s=since_s, **more)


def test_a_rise_on_its_way_through_a_hump_turns_nothing_and_one_that_stays_there_does() -> None:
    rules = shared(TWICE)
    for since_s, favoured in ((DEMAND_S, SPECULATIVE), (LONGEST_S, BASELINE)):
        regime = Regime(SPECULATIVE, -1000.0, 0.0, 0.0, 0.0, lasted(200.0, since_s))
        assert looked(rules, regime, 0, 0.0).role is favoured


@settings(max_examples=300)
@given(any_curves(), st.sampled_from(ROLES), st.floats(1.0, 6000.0), st.floats(0.0, LONGEST_S), st.floats(0.0, 4.0))
def test_no_mean_turns_the_role_to_one_that_is_worse_at_either_end_of_what_it_may_be(
    measured: Curves, role: Role, tok_s: float, since_s: float, spread: float
) -> None:
    rules, demand = shared(measured), lasted(tok_s, since_s, spread=spread)
    after = looked(rules, Regime(role, -1000.0, 0.0, 0.0, 0.0, demand), 0, 0.0)
    assert rules.paces is not None
    pair = rules.paces.at_context(1024.0)
    here, there = pair if role is SPECULATIVE else pair[::-1]
    low, high = reach(demand, tok_s)
    assert 0.0 <= low <= tok_s <= high
    if after.role is not role:
        assert all(here.alone(end, 0.0) >= there.alone(end, 0.0) for end in (low, high))


@given(st.floats(0.0, 6000.0), st.floats(0.0, LONGEST_S), st.floats(0.0, 4.0), st.floats(1.0, 3.0))
def test_the_demand_is_known_the_better_the_longer_it_lasts_and_the_worse_in_bursts(
    tok_s: float, since_s: float, spread: float, more: float
) -> None:
    low, high = reach(lasted(tok_s, since_s, spread=spread), tok_s)
    longer = reach(lasted(tok_s, since_s * more, spread=spread), tok_s)
    bursts = reach(lasted(tok_s, since_s, spread=spread * more), tok_s)
    assert bursts[0] <= low <= longer[0] <= longer[1] <= high <= bursts[1]


def test_both_are_looked_at_once_in_a_quarter_second_and_nothing_of_the_time_between_is_lost() -> None:
    rules = shared(TWICE)
    regime = fresh(rules)._replace(since_s=0.0, held=8.0, demand=Demand(10.0, 0.0, 256.0, 2.0, looked_at_s=0.0))
    often = follow(rules, follow(rules, regime, 4, 0.125), 4, 0.25).demand
    assert follow(rules, regime, 4, 0.125).demand.held == 2.0, "not yet"
    assert often.held == pytest.approx(6.0 - 4.0 * exp(-0.25 / DEMAND_S))
    assert (often.looked_at_s, often.flown) == (0.25, 0.0)


def test_in_demand_that_comes_and_goes_a_new_height_is_no_reason_until_as_much_was_lost_as_a_change_costs() -> None:
    rules = shared(TWICE)
    demand = Demand(150.0, 1024.0, 256.0, lasting_tok_s=150.0, lasted_s=LONGEST_S)
    for spread, excess, favoured in ((0.5, 0.0, BASELINE), (0.6, 1.0, SPECULATIVE), (0.6, 500.0, BASELINE)):
        seen = demand._replace(spread=spread, excess=excess)
        assert looked(rules, Regime(SPECULATIVE, -1000.0, 4.0, 0.0, 0.0, seen), 0, 0.0).role is favoured


def test_a_crowd_that_saves_too_little_while_it_lasts_changes_nothing() -> None:
    flat = of_both({1: 60.0, 64: 640.0}, {1: 40.0, 64: 900.0})
    assert looked(shared(flat), crowded(30.0), 30, 0.0).role is BASELINE
    assert looked(shared(flat), crowded(30.0)._replace(smoothed=100.0), 30, 0.0).role is SPECULATIVE


# ---------------------------------------------------------------- a steep rise

CROSSED = of_both({1: 60.0, 16: 320.0}, {1: 40.0, 16: 640.0, 64: 1600.0})


def crowded(held: float, *, since_s: float = -1000.0, tok_s: float = 20.0) -> Regime:
    """So many in flight where little was asked for until now."""
    return Regime(SPECULATIVE, since_s, 2.0, 0.0, held, Demand(tok_s, 1024.0, 256.0, 0.2))


@settings(max_examples=300)
@given(TABLES, st.floats(1.0, 6000.0), st.lists(st.floats(0.0, 600.0), min_size=2, max_size=8), st.floats(0.0, 4.0))
def test_a_burst_is_more_than_chance_makes_the_greater_the_more_there_are_and_rarer_where_requests_come_in_bursts(
    table: Table, tok_s: float, counts: list[float], spread: float
) -> None:
    here, calm = Paces(speed_curve(table)), lasted(tok_s, LONGEST_S)
    found = [crowding(here, held, calm, tok_s) for held in sorted(counts)]
    assert found == sorted(found)
    for held, burst in zip(sorted(counts), found, strict=True):
        assert burst == 0.0 or held > here.at_most(tok_s, 1.0)
        assert burst == 0.0 or burst == here.demand_of(held)
        assert crowding(here, held, lasted(tok_s, LONGEST_S, spread=spread), tok_s) <= burst


def test_near_the_most_that_an_engine_gives_chance_fills_it_further() -> None:
    rising, near = Paces(speed_curve({1: 40.0, 64: 2560.0})), Paces(speed_curve({1: 40.0, 8: 250.0, 64: 300.0}))
    demand = lasted(240.0, LONGEST_S)
    assert crowding(rising, 20.0, demand, 240.0) == pytest.approx(800.0, rel=0.01)
    assert crowding(near, 20.0, demand, 240.0) == 0.0


def test_beyond_what_was_measured_who_fills_up_is_left_for_the_line_that_leads_higher() -> None:
    alike = {1: 100.0, 8: 400.0}
    for theirs, held, favoured in (
        ({1: 80.0, 8: 402.0}, 16.0, BASELINE),
        ({1: 80.0, 8: 402.0}, 15.0, SPECULATIVE),
        (alike, 100.0, SPECULATIVE),
    ):
        regime = Regime(SPECULATIVE, -1000.0, 0.0, 0.0, held, lasted(500.0, LONGEST_S))
        assert looked(shared(of_both(alike, theirs)), regime, int(held), 0.0).role is favoured
    regime = Regime(SPECULATIVE, -1000.0, 0.0, 0.0, 40.0, lasted(300.0, LONGEST_S, held=6.0))
    assert looked(shared(of_both(alike, {1: 20.0, 8: 402.0})), regime, 40, 0.0).role is SPECULATIVE, "it can give that"


def test_more_in_flight_than_chance_explains_change_the_role_at_once() -> None:
    assert looked(shared(CROSSED), crowded(4.0), 4, 0.0).role is SPECULATIVE
    assert looked(shared(CROSSED), crowded(30.0), 30, 0.0).role is BASELINE


def test_a_crowd_changes_nothing_within_the_dwell() -> None:
    for passed_s, favoured in ((59.9, SPECULATIVE), (60.0, BASELINE)):
        assert looked(shared(CROSSED), crowded(200.0, since_s=-passed_s), 200, 0.0).role is favoured


def test_a_crowd_changes_nothing_where_the_other_would_not_serve_it_sooner_by_a_tenth() -> None:
    nearly = of_both({1: 60.0, 64: 640.0}, {1: 60.0, 64: 650.0})
    for held in (10.0, 30.0):
        assert looked(shared(nearly), crowded(held), int(held), 0.0).role is SPECULATIVE


def test_a_crowd_of_which_no_demand_is_known_changes_nothing() -> None:
    assert looked(shared(CROSSED), crowded(200.0)._replace(demand=NO_DEMAND), 200, 0.0).role is SPECULATIVE


@settings(max_examples=200)
@given(any_curves(), st.floats(0.0, 300.0), st.floats(0.1, 6000.0), st.sampled_from(ROLES))
def test_the_crowd_decides_equal_for_equal_inputs_and_never_within_the_dwell(
    measured: Curves, held: float, tok_s: float, role: Role
) -> None:
    regime = crowded(held, since_s=-59.0, tok_s=tok_s)._replace(role=role)
    assert looked(shared(measured), regime, int(held), 0.0).role is role
    late = regime._replace(since_s=-60.0)
    assert looked(shared(measured), late, int(held), 0.0) == looked(shared(measured), late, int(held), 0.0)


@pytest.mark.parametrize("down", ROLES)
def test_a_crowd_never_sends_a_request_to_one_that_is_not_eligible(down: Role) -> None:
    loads = [BackendLoad(role, 15, None, eligible=role is not down) for role in ROLES]
    assert decide(shared(CROSSED), crowded(30.0), LoadSnapshot(0.0, *loads), Traits()).role is down.other


# ---------------------------------------------------------------- a favoured one that is full


def full(role: Role, there: int = 0, *, eligible: tuple[bool, bool] = (True, True)) -> LoadSnapshot:
    """The favoured one holds the 16 that it may; the other one holds `there`."""
    ours = BackendLoad(role, 16, 16, eligible=eligible[0])
    theirs = BackendLoad(role.other, there, 64, eligible=eligible[1])
    return LoadSnapshot(0.0, *((ours, theirs) if role is SPECULATIVE else (theirs, ours)))


@pytest.mark.parametrize("role", ROLES)
def test_a_request_waits_for_the_favoured_one_where_both_would_give_less_than_that_one(role: Role) -> None:
    rules = shared(of_both({1: 60.0, 32: 500.0}, {1: 40.0, 32: 500.0}))
    decision = decide(rules, Regime(role, 0.0, smoothed_at_s=0.0), full(role), Traits())
    assert (decision.role, decision.reason) == (None, Reason.FULL)


def test_a_request_spills_to_one_that_alone_would_give_more() -> None:
    rules = shared(of_both({1: 60.0, 16: 100.0}, {1: 40.0, 16: 640.0}))
    regime = Regime(SPECULATIVE, 0.0, smoothed_at_s=0.0)
    assert decide(rules, regime, full(SPECULATIVE, 0), Traits()).role is None
    decision = decide(rules, regime, full(SPECULATIVE, 4), Traits())
    assert (decision.role, decision.reason) == (BASELINE, Reason.OTHER_FULL)


@pytest.mark.parametrize("eligible", [(False, True), (False, False)])
def test_a_request_does_not_wait_for_one_that_is_not_eligible(eligible: tuple[bool, bool]) -> None:
    rules = shared(of_both({1: 60.0, 32: 500.0}, {1: 40.0, 32: 500.0}))
    decision = decide(
        rules, Regime(SPECULATIVE, 0.0, smoothed_at_s=0.0), full(SPECULATIVE, eligible=eligible), Traits()
    )
    assert decision.role is BASELINE


def test_on_gpus_of_their_own_a_full_one_lets_requests_go_to_the_other() -> None:
    rules = Rules(Policy.CONSOLIDATE, Placement.SEPARATE, curves=of_both({1: 60.0, 32: 500.0}, {1: 40.0, 32: 500.0}))
    assert decide(rules, Regime(SPECULATIVE, 0.0, smoothed_at_s=0.0), full(SPECULATIVE), Traits()).role is BASELINE


# ---------------------------------------------------------------- what is told, and failures


def test_the_answers_time_on_either_backend_is_told() -> None:
    rules = shared(TWICE)
    regime = fresh(rules)._replace(demand=Demand(150.0, 1024.0))
    costs = decide(rules, regime, snapshot(0.0), Traits()).because.costs
    assert costs is not None
    for told_s, table in ((costs.speculative_s, OURS), (costs.baseline_s, THEIRS)):
        assert told_s == EXPECTED_TOKENS * Paces(speed_curve(table)).at_demand(150.0)
    assert costs.extrapolated is False


def test_demand_beyond_what_was_measured_is_told_as_infinite() -> None:
    rules = shared(TWICE)
    costs = decide(rules, fresh(rules)._replace(demand=Demand(400.0, 0.0)), snapshot(0.0), Traits()).because.costs
    assert costs is not None
    assert (costs.baseline_s, costs.extrapolated) == (inf, True)
    assert costs.speculative_s < OVERLOADED_S


@pytest.mark.parametrize("favoured", ROLES)
def test_a_favoured_backend_that_fails_fast_is_passed_over_and_stays_favoured(favoured: Role) -> None:
    rules = shared(of_both({1: 60.0, 8: 200.0}, {1: 59.0, 8: 200.0}))
    regime = Regime(favoured, 0.0, smoothed_at_s=0.0)
    failures = (9, 0) if favoured is SPECULATIVE else (0, 9)
    decision = decide(rules, regime, snapshot(0.0, failures=failures), Traits())
    assert (decision.role, decision.reason) == (favoured.other, Reason.OVERFLOW)
    assert decision.regime.role is favoured
    found = decide_by_counts(
        rules,
        regime,
        0.0,
        Traits(),
        in_flight=(0, 0),
        limits=(None, None),
        recent_failures=failures[0],
        baseline_failures=failures[1],
    )
    assert found is None, "left to the closer look"

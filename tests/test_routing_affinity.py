"""A conversation stays where its prompt is cached while that pays; state is served where it is or nowhere."""

from typing import Any

import pytest
from fakes.speeds import any_curves, bucket, curves
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.model import (
    ROLES,
    BackendLoad,
    Decision,
    LoadSnapshot,
    Placement,
    Policy,
    Reason,
    Regime,
    Role,
    Traits,
    Whereabouts,
)
from proxy.routing.affinity import Wait
from proxy.routing.policy import RequestRule, RuleKind, Rules, decide, decide_by_counts, preference
from proxy.routing.rules import Affinity

SPECULATIVE, BASELINE = ROLES
# As fast as one another at any number in flight, so that only what is cached makes a difference.
EQUAL = {1: 100.0, 8: 400.0, 64: 1200.0}
PREFILL = (8000.0, 8000.0)
WITH_PREFILL = curves(bucket(EQUAL, EQUAL, prefill_tok_s=PREFILL))
WITHOUT = curves(bucket(EQUAL, EQUAL))
SLOWER = curves(bucket({1: 30.0, 8: 120.0, 64: 360.0}, EQUAL))
LONG = Traits(prompt_bytes=4 * 32_000)


def rules(policy: Policy = Policy.MARGINAL, **more: Any) -> Rules:
    return Rules(policy, **{"affinity": Affinity(), **more})


def seen(speculative: int = 0, baseline: int = 0, *, of: Role = SPECULATIVE, **more: Any) -> LoadSnapshot:
    """So many in flight; `more` of one backend."""
    first, second = BackendLoad(SPECULATIVE, speculative), BackendLoad(BASELINE, baseline)
    if of is SPECULATIVE:
        return LoadSnapshot(0.0, first._replace(**more), second)
    return LoadSnapshot(0.0, first, second._replace(**more))


def cached(role: Role, tokens: int) -> Whereabouts:
    return Whereabouts(*((tokens, 0) if role is SPECULATIVE else (0, tokens)), home=role)


def goes(given_rules: Rules, snapshot: LoadSnapshot, where: Whereabouts, traits: Traits = LONG) -> tuple[Any, Reason]:
    decision = decide(given_rules, Regime(smoothed_at_s=0.0), snapshot, traits, where=where)
    return decision.role, decision.reason


@pytest.mark.parametrize("home", ROLES)
def test_a_long_conversation_stays_where_it_is_cached_by_the_time_of_its_prefill(home: Role) -> None:
    busy = (3, 0) if home is SPECULATIVE else (0, 3)
    given_rules = rules(curves=WITH_PREFILL)
    assert goes(given_rules, seen(*busy), Whereabouts())[0] is home.other
    assert goes(given_rules, seen(*busy), cached(home, 30_000)) == (home, Reason.AFFINITY)


def test_it_moves_once_its_home_delays_all_by_more_than_computing_it_anew() -> None:
    given_rules = rules(curves=WITH_PREFILL)
    assert goes(given_rules, seen(3, 0), cached(SPECULATIVE, 30_000))[0] is SPECULATIVE
    assert goes(given_rules, seen(60, 0), cached(SPECULATIVE, 30_000)) == (BASELINE, Reason.CHEAPER)


def test_a_home_may_cost_a_tenth_more() -> None:
    given_rules = rules(curves=curves(bucket(EQUAL, {n: speed * 1.05 for n, speed in EQUAL.items()})))
    assert goes(given_rules, seen(), Whereabouts()) == (BASELINE, Reason.CHEAPER)
    assert goes(given_rules, seen(), Whereabouts(home=SPECULATIVE)) == (SPECULATIVE, Reason.AFFINITY)


@pytest.mark.parametrize(
    ("speeds", "tokens", "stays"), [(WITHOUT, 9000, True), (SLOWER, 9000, False), (SLOWER, 0, False)]
)
def test_without_prefill_a_long_one_stays_up_to_twice_the_cost(speeds: Any, tokens: int, stays: bool) -> None:
    role, _ = goes(rules(curves=speeds), seen(2, 2), cached(SPECULATIVE, tokens))
    assert (role is SPECULATIVE) is stays


@pytest.mark.parametrize(("busy", "tokens", "stays"), [(12, 9000, True), (18, 9000, False), (12, 8000, False)])
def test_overflow_without_curves_keeps_a_long_one_up_to_twice_leave_at(busy: int, tokens: int, stays: bool) -> None:
    role, reason = goes(rules(Policy.OVERFLOW, leave_at=9), seen(busy), cached(SPECULATIVE, tokens))
    assert (role is SPECULATIVE) is stays
    assert (reason is Reason.AFFINITY) is stays


def test_overflow_keeps_a_long_one_on_a_baseline_that_does_not_fail() -> None:
    given_rules, where = rules(Policy.OVERFLOW), cached(BASELINE, 20_000)
    assert goes(given_rules, seen(), where) == (BASELINE, Reason.AFFINITY)
    assert goes(given_rules, seen(of=BASELINE, recent_failures=1), where) == (SPECULATIVE, Reason.ROOM)


@pytest.mark.parametrize(
    "more",
    [
        {"affinity": None},
        {"placement": Placement.SHARED},
        {"policy": Policy.THRESHOLD},
        {"policy": Policy.PINNED, "pin": BASELINE},
    ],
)
def test_nothing_stays_where_that_cannot_pay(more: dict[str, Any]) -> None:
    given_rules = Rules(**{"policy": Policy.OVERFLOW, "affinity": Affinity(), **more})
    assert not given_rules.affine
    assert goes(given_rules, seen(), cached(SPECULATIVE, 20_000))[1] is not Reason.AFFINITY


def test_a_home_that_is_full_or_not_eligible_is_left() -> None:
    given_rules, where = rules(curves=WITH_PREFILL), cached(SPECULATIVE, 30_000)
    assert goes(given_rules, seen(4, max_in_flight=4), where) == (BASELINE, Reason.OTHER_FULL)
    assert goes(given_rules, seen(eligible=False), where) == (BASELINE, Reason.ONLY_ELIGIBLE)


def test_wishes_go_before_a_home() -> None:
    where = cached(SPECULATIVE, 30_000)
    pinned = rules(curves=WITH_PREFILL, operator_pin=BASELINE)
    asking = rules(curves=WITH_PREFILL, allow_header=True)
    assert goes(pinned, seen(), where) == (BASELINE, Reason.OPERATOR_PIN)
    assert goes(asking, seen(), where, LONG._replace(asked=BASELINE)) == (BASELINE, Reason.HEADER)


def test_state_goes_before_all_wishes_but_the_operators() -> None:
    rule = RequestRule(RuleKind.SESSION, BASELINE)
    traits, where = Traits(session=True, asked=BASELINE, state=1), Whereabouts(state=SPECULATIVE)
    given_rules = rules(Policy.OVERFLOW, allow_header=True, request_rules=(rule,))
    assert goes(given_rules, seen(90), where, traits) == (SPECULATIVE, Reason.STATE)
    assert preference(given_rules, traits, SPECULATIVE) is SPECULATIVE
    pinned = rules(Policy.OVERFLOW, operator_pin=BASELINE)
    assert goes(pinned, seen(), where, traits) == (BASELINE, Reason.OPERATOR_PIN)


@pytest.mark.parametrize("away", [{"max_in_flight": 3}, {"eligible": False}])
def test_state_waits_for_its_engine_and_goes_nowhere_else(away: dict[str, Any]) -> None:
    where = Whereabouts(state=SPECULATIVE)
    assert goes(rules(), seen(3, **away), where) == (None, Reason.FULL)


def test_what_is_cached_is_told() -> None:
    decision = decide(rules(), Regime(), seen(), LONG, where=Whereabouts(512, 1024, BASELINE))
    assert (decision.because.speculative_cached, decision.because.baseline_cached) == (512, 1024)


roles = st.sampled_from(ROLES)
wheres = st.builds(
    Whereabouts,
    st.integers(0, 40_000),
    st.integers(0, 40_000),
    st.none() | roles,
    st.sampled_from([None, None, *ROLES]),
)
loads = [
    st.builds(
        BackendLoad,
        st.just(role),
        st.integers(0, 15),
        st.none() | st.integers(1, 20),
        st.integers(0, 3),
        st.booleans(),
        st.none() | st.floats(0, 30),
    )
    for role in ROLES
]
rule_sets = st.builds(
    Rules,
    policy=st.sampled_from(Policy),
    placement=st.sampled_from(Placement),
    curves=st.none() | any_curves(),
    affinity=st.none() | st.builds(Affinity, st.integers(512, 20_000)),
    operator_pin=st.sampled_from([None, None, None, *ROLES]),
    smoothing_s=st.just(2.0),
)
prompts = st.builds(
    Traits, weight=st.integers(1, 9), prompt_bytes=st.integers(0, 400_000), model=st.none(), max_tokens=st.none()
)


@settings(max_examples=150)
@given(rule_sets, st.builds(LoadSnapshot, st.just(5.0), *loads), prompts, wheres)
def test_no_home_makes_a_decision_name_a_backend_that_is_not_eligible_or_full(
    given_rules: Rules, snapshot: LoadSnapshot, traits: Traits, where: Whereabouts
) -> None:
    regime = Regime(smoothed_at_s=0.0)
    decision = decide(given_rules, regime, snapshot, traits, where=where)
    assert decision == decide(given_rules, regime, snapshot, traits, where=where)
    if decision.role is None:
        return
    load = snapshot.of(decision.role)
    assert load.eligible or snapshot.all_down
    assert load.max_in_flight is None or load.in_flight + min(traits.weight, load.max_in_flight) <= load.max_in_flight
    if where.state is not None and given_rules.operator_pin is None:
        assert decision.role is where.state


@settings(max_examples=150)
@given(rule_sets, st.builds(LoadSnapshot, st.just(5.0), *loads), prompts, wheres)
def test_two_counts_and_a_home_decide_as_a_look_at_everything_does(
    given_rules: Rules, snapshot: LoadSnapshot, traits: Traits, where: Whereabouts
) -> None:
    first, second = (load._replace(eligible=True, recovered_s=None, silent=False) for load in snapshot[1:])
    snapshot, regime = LoadSnapshot(5.0, first, second), Regime(smoothed_at_s=0.0)
    counting = given_rules.by_curves or where != Whereabouts()
    decision: Decision | None = decide_by_counts(
        given_rules,
        regime,
        5.0,
        traits,
        in_flight=(first.in_flight, second.in_flight),
        limits=(first.max_in_flight, second.max_in_flight),
        recent_failures=first.recent_failures,
        baseline_failures=second.recent_failures if counting else 0,
        where=where,
    )
    if decision is not None:
        assert decision == decide(given_rules, regime, snapshot, traits, where=where)
        assert where.state is None


# ---------------------------------------------------------------- a full home


def waits(
    wait: Wait | None, *, tokens: int = 30_000, beside: int = 3, traits: Traits = LONG, **more: Any
) -> tuple[Role | None, Reason]:
    """What becomes of a conversation whose home, speculative, has eight at its limit, beside so many."""
    snapshot = seen(8, beside, max_in_flight=8)
    given_rules = rules(**{"curves": WITH_PREFILL, **more})
    where = cached(SPECULATIVE, tokens)
    decision = decide(given_rules, Regime(smoothed_at_s=0.0), snapshot, traits, where=where, wait=wait)
    return decision.role, decision.reason


WAITS, SPILLS = (None, Reason.FULL), (BASELINE, Reason.OTHER_FULL)


def test_a_full_home_is_waited_for_while_that_is_sooner_than_to_compute_it_anew_for_all_who_run_there() -> None:
    # One of eight answers of 256 tokens ends after 0.64 s; 30,000 tokens take 3.75 s, and 1024 an eighth of one.
    assert waits(Wait()) == WAITS
    assert waits(Wait(), tokens=1024, beside=7) == WAITS, "seven others would stand still too"
    assert waits(Wait(), tokens=512, beside=7) == SPILLS


def test_behind_others_who_wait_for_the_same_home_it_takes_longer() -> None:
    assert waits(Wait(for_speculative=20)) == WAITS
    assert waits(Wait(for_speculative=30)) == SPILLS
    assert waits(Wait(for_baseline=30)) == WAITS, "those are before another door"


def test_nobody_waits_longer_in_all_than_it_costs_to_go() -> None:
    assert waits(Wait(waited_s=14.9)) == WAITS
    assert waits(Wait(waited_s=15.1)) == SPILLS


def test_who_may_not_wait_or_knows_no_price_goes_where_there_is_room() -> None:
    assert waits(None) == SPILLS
    assert waits(Wait(), curves=WITHOUT) == SPILLS
    assert waits(Wait(), policy=Policy.OVERFLOW, curves=None, leave_at=20) == SPILLS


@pytest.mark.parametrize(
    "beside", [{"eligible": False}, {"max_in_flight": 3}, {"recovered_s": 0.1}], ids=["out", "full", "ramping"]
)
def test_it_goes_to_no_backend_that_takes_nothing_however_long_it_has_waited(beside: dict[str, Any]) -> None:
    snapshot = seen(8, 3, max_in_flight=8)
    snapshot = snapshot._replace(baseline=snapshot.baseline._replace(**beside))
    decision = decide(
        rules(curves=WITH_PREFILL),
        Regime(smoothed_at_s=0.0),
        snapshot,
        LONG,
        where=cached(SPECULATIVE, 30_000),
        wait=Wait(waited_s=99.0),
    )
    assert (decision.role, decision.reason) == WAITS

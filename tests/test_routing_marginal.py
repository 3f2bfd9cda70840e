"""Policy `marginal`: the formula for any curves, the numbers of the box this began from, and what follows of them."""

from typing import NamedTuple

import pytest
from fakes.speeds import any_curves, bucket, curves, of_both, shipped
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.lab.curves import shipped as names
from proxy.model import (
    BASELINE,
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
from proxy.routing.curves import Curves
from proxy.routing.delays import Delays
from proxy.routing.demand import BYTES_PER_TOKEN, MAX_PROMPT_TOKENS
from proxy.routing.marginal import EXPECTED_TOKENS
from proxy.routing.outlook import outlook
from proxy.routing.policy import decide, decide_by_counts
from proxy.routing.rules import Goals, Rules

COUNTS = st.integers(0, 80) | st.integers(500, 2000)
FAILURES = st.sampled_from([0, 0, 3])


def asked(rules: Rules, speculative: int, baseline: int, traits: Traits | None = None) -> Decision:
    seen = LoadSnapshot(0.0, BackendLoad(SPECULATIVE, speculative), BackendLoad(BASELINE, baseline))
    return decide(rules, Regime(smoothed_at_s=0.0), seen, traits or Traits())


class Naive(NamedTuple):
    """The sum of its parts, each from where it comes."""

    curves: Curves
    demand: Demand

    def cost(self, role: Role, n: int, traits: Traits) -> float:
        weight, told = traits.weight, traits.prompt_bytes / BYTES_PER_TOKEN
        context = self.curves.at_context(told)
        assert context.speculative is not None
        assert context.baseline is not None
        ours = Delays(context.speculative, context.prefill_tok_s[0])
        theirs = Delays(context.baseline, context.prefill_tok_s[1])
        ahead = outlook(ours, theirs, self.demand)[ROLES.index(role)]
        tokens = EXPECTED_TOKENS if traits.max_tokens is None else min(EXPECTED_TOKENS, traits.max_tokens)
        decoding_s = tokens * sum(ahead.added(n + more, 1) for more in range(weight))
        if ours.prefill_tok_s is None or theirs.prefill_tok_s is None:
            return decoding_s
        speed = ours.prefill_tok_s if role is SPECULATIVE else theirs.prefill_tok_s
        return decoding_s + min(told, MAX_PROMPT_TOKENS) / speed * ahead.stopped(n + weight)


class Pair(NamedTuple):
    """Sequences in flight and recent failures, speculative first."""

    in_flight: tuple[int, int]
    failures: tuple[int, int]


@settings(max_examples=200)
@given(
    any_curves(),
    st.builds(Demand, st.floats(0.0, 5000.0), prompt_tok_s=st.floats(0.0, 100_000.0)),
    st.builds(Pair, st.tuples(COUNTS, COUNTS), st.tuples(FAILURES, FAILURES)),
    st.builds(
        Traits,
        weight=st.integers(1, 40),
        prompt_bytes=st.integers(0, 900_000),
        max_tokens=st.none() | st.integers(1, 2000),
    ),
    st.sampled_from([Policy.MARGINAL, Policy.AUTO]),
)
def test_a_request_goes_where_it_costs_less_for_any_curves_demand_counts_and_weights(
    measured: Curves, demand: Demand, pair: Pair, traits: Traits, policy: Policy
) -> None:
    loads = [BackendLoad(role, n, None, lost) for role, n, lost in zip(ROLES, *pair, strict=True)]
    rules, seen = Rules(policy, curves=measured), LoadSnapshot(0.0, *loads)
    decision = decide(rules, Regime(smoothed_at_s=0.0, demand=demand), seen, traits)
    cost, other = (
        Naive(measured, demand).cost(load.role, load.in_flight + load.recent_failures, traits) for load in loads
    )
    because = decision.because
    assert (because.speculative_cost_s, because.baseline_cost_s) == pytest.approx((cost, other))
    assert because.speculative_cost_s is not None
    assert because.baseline_cost_s is not None
    assert decision.role is (SPECULATIVE if because.speculative_cost_s < because.baseline_cost_s else BASELINE)
    assert (decision.reason, because.policy) == (Reason.CHEAPER, Policy.MARGINAL)
    assert because.costs is not None
    assert because.costs.baseline_failures == pair.failures[1]


# ---------------------------------------------------------------- the seed box


@pytest.mark.parametrize(("baseline", "filled"), [(0, 0), (4, 4), (16, 12), (64, 36)])
def test_where_speculation_always_loses_it_is_filled_up_to_where_the_costs_meet(baseline: int, filled: int) -> None:
    rules = Rules(curves=shipped("seed"))
    first = next(n for n in range(200) if asked(rules, n, baseline).role is BASELINE)
    assert abs(first - filled) <= 1
    assert all(asked(rules, n, baseline).role is SPECULATIVE for n in range(first))


def test_where_speculation_always_loses_the_baseline_gets_the_first_and_most_of_all() -> None:
    rules, flying = Rules(curves=shipped("seed")), {SPECULATIVE: 0, BASELINE: 0}
    went = []
    for _ in range(100):
        role = asked(rules, flying[SPECULATIVE], flying[BASELINE]).role
        assert role is not None
        went.append(role)
        flying[role] += 1
    assert went[0] is BASELINE
    assert flying[BASELINE] > flying[SPECULATIVE] > 0


@pytest.mark.parametrize("name", names())
def test_an_idle_pair_gives_its_first_request_to_the_one_that_is_faster_alone(name: str) -> None:
    measured = shipped(name)
    lone = measured.contexts[0].of
    speeds = [curve.tok_s(1) for curve in map(lone, ROLES) if curve is not None]
    if max(speeds) > 1.01 * min(speeds):
        assert asked(Rules(curves=measured), 0, 0).role is ROLES[speeds.index(max(speeds))]


def test_equal_costs_go_to_the_baseline() -> None:
    assert asked(Rules(curves=of_both({1: 50.0}, {1: 50.0})), 2, 2).role is BASELINE


# ---------------------------------------------------------------- goals


def test_a_goal_moves_a_request_to_the_backend_that_keeps_it() -> None:
    # Beside four a token takes 17 ms on speculative and 22 on baseline, where it adds less delay to all.
    measured = of_both({1: 80.0, 4: 280.0, 5: 300.0}, {1: 46.0, 5: 229.0})
    assert asked(Rules(curves=measured), 4, 4).role is BASELINE
    assert asked(Rules(curves=measured, goals=Goals(tpot_s=0.019)), 4, 4).role is SPECULATIVE
    assert asked(Rules(curves=measured, goals=Goals(tpot_s=0.030)), 4, 4).role is BASELINE


@given(
    any_curves(),
    st.tuples(COUNTS, COUNTS),
    st.integers(1, 40),
    st.builds(Goals, st.none() | st.floats(0.01, 10), st.none() | st.floats(0.001, 1)),
)
def test_lateness_is_added_tenfold_to_what_a_request_costs(
    measured: Curves, counts: tuple[int, int], weight: int, goals: Goals
) -> None:
    traits = Traits(weight=weight, prompt_bytes=40_000)
    late = asked(Rules(curves=measured, goals=goals), *counts, traits).because
    costs = asked(Rules(curves=measured), *counts, traits).because
    context = measured.at_context(40_000 / BYTES_PER_TOKEN)
    told = ((late.speculative_cost_s, costs.speculative_cost_s), (late.baseline_cost_s, costs.baseline_cost_s))
    for role, n, prefill_tok_s, (with_s, without_s) in zip(ROLES, counts, context.prefill_tok_s, told, strict=True):
        curve = context.of(role)
        assert curve is not None
        assert without_s is not None
        step_s = curve.seconds_per_token(n + weight)
        prefill_s = 10_000 / prefill_tok_s if prefill_tok_s else 0.0
        first_s = 0.0 if goals.ttft_s is None else max(0.0, prefill_s + step_s - goals.ttft_s)
        next_s = 0.0 if goals.tpot_s is None else max(0.0, step_s - goals.tpot_s)
        assert with_s == pytest.approx(without_s + 10 * (first_s + EXPECTED_TOKENS * next_s))


# ---------------------------------------------------------------- by prompt and by answer


def test_a_long_prompt_goes_where_fewer_wait_for_its_prefill() -> None:
    speeds = ({1: 90.0, 8: 400.0}, {1: 60.0, 8: 300.0})
    for prefill_tok_s, went in (
        ((5000.0, 5000.0), BASELINE),
        ((None, 5000.0), SPECULATIVE),
        ((None, None), SPECULATIVE),
    ):
        rules = Rules(curves=curves(bucket(*speeds, 1024, prefill_tok_s)))
        assert asked(rules, 4, 2, Traits(prompt_bytes=400)).role is SPECULATIVE
        assert asked(rules, 4, 2, Traits(prompt_bytes=400_000)).role is went


# ---------------------------------------------------------------- by answer


@pytest.mark.parametrize(
    ("expected", "limit", "tokens"), [(100.0, None, 100.0), (100.0, 20, 20.0), (100.0, 1000, 100.0)]
)
def test_costs_are_told_for_the_answer_that_is_expected_within_its_limit(
    expected: float, limit: int | None, tokens: float
) -> None:
    rules, traits = Rules(curves=of_both({1: 50.0}, {1: 40.0})), Traits(max_tokens=limit)
    one_token = asked(rules, 0, 0, Traits(max_tokens=1)).because.speculative_cost_s
    assert one_token is not None
    seen = LoadSnapshot(0.0, *map(BackendLoad, ROLES))
    decision = decide(rules, Regime(smoothed_at_s=0.0), seen, traits, expected_tokens=expected)
    assert decision.because.speculative_cost_s == pytest.approx(tokens * one_token)
    short = decide_by_counts(
        rules,
        Regime(smoothed_at_s=0.0),
        0.0,
        traits,
        in_flight=(0, 0),
        limits=(None, None),
        recent_failures=0,
        expected_tokens=expected,
    )
    assert short == decision


# ---------------------------------------------------------------- by context, beyond what was measured, on shared GPUs


def test_each_request_is_placed_by_the_curves_around_its_own_context() -> None:
    rules = Rules(curves=curves(bucket({1: 90.0}, {1: 60.0}, 400), bucket({1: 30.0}, {1: 50.0}, 40_000)))
    assert asked(rules, 0, 0, Traits(prompt_bytes=1600)).role is SPECULATIVE
    assert asked(rules, 0, 0, Traits(prompt_bytes=160_000)).role is BASELINE


@pytest.mark.parametrize(
    ("speculative", "baseline", "weight", "beyond"),
    [(0, 0, 1, False), (7, 3, 1, False), (8, 3, 1, True), (3, 4, 5, True)],
)
def test_what_lies_beyond_the_measured_counts_is_marked(
    speculative: int, baseline: int, weight: int, beyond: bool
) -> None:
    rules = Rules(curves=of_both({1: 90.0, 8: 200.0}, {1: 60.0, 8: 300.0}))
    costs = asked(rules, speculative, baseline, Traits(weight=weight)).because.costs
    assert costs is not None
    assert costs.extrapolated is beyond


def test_other_policies_tell_the_costs_too_and_are_not_moved_by_them() -> None:
    seed = shipped("seed")
    decision = asked(Rules(Policy.OVERFLOW, curves=seed), 0, 0)
    assert (decision.role, decision.reason) == (SPECULATIVE, Reason.ROOM)
    assert decision.because.costs == asked(Rules(curves=seed), 0, 0).because.costs


def test_on_shared_gpus_no_costs_are_told_unless_the_policy_is_named() -> None:
    seed = shipped("seed")
    assert asked(Rules(Policy.THRESHOLD, Placement.SHARED, curves=seed), 0, 0).because.costs is None
    assert asked(Rules(Policy.MARGINAL, Placement.SHARED, curves=seed), 0, 0).because.costs is not None


def test_without_curves_there_is_no_cost() -> None:
    because = asked(Rules(), 0, 0).because
    assert (because.costs, because.speculative_cost_s, because.baseline_cost_s) == (None, None, None)


def test_a_backend_that_fails_fast_does_not_look_idle() -> None:
    rules = Rules(curves=of_both({1: 90.0, 8: 200.0}, {1: 85.0, 8: 300.0}))
    for failing in ROLES:
        loads = [BackendLoad(role, 0, None, 8 * (role is failing)) for role in ROLES]
        seen = LoadSnapshot(0.0, *loads)
        assert decide(rules, Regime(smoothed_at_s=0.0), seen, Traits()).role is failing.other
        by_counts = decide_by_counts(
            rules,
            Regime(smoothed_at_s=0.0),
            0.0,
            Traits(),
            in_flight=(0, 0),
            limits=(None, None),
            recent_failures=loads[0].recent_failures,
            baseline_failures=loads[1].recent_failures,
        )
        assert by_counts is not None
        assert by_counts.role is failing.other

"""Whole calibrations of virtual engines find what is true of them. scripts/prove_calibration does it for all curves."""

import statistics
from functools import cache
from itertools import chain

import pytest
from simulate.trials import Outcome, Trial, tried

from proxy.lab.calibration.deciding.quick import QUICK_BUDGET_S
from proxy.lab.curves import DEFAULT_CURVE
from proxy.routing.verdict import VerdictKind

NEVER, ALWAYS, REVERSE, TWICE = (
    "seed",
    "rtx6kpro_glm5_sglang_cutlass_ctx0",
    "rtx6kpro_qwen35_397b_awq_vllm_ctx64k",
    "rtx6kpro_glm51_dcp4_ctx0",
)
KINDS = {
    NEVER: VerdictKind.NEVER_SPECULATE,
    ALWAYS: VerdictKind.ALWAYS_SPECULATE,
    DEFAULT_CURVE: VerdictKind.CROSSOVER_AT,
    REVERSE: VerdictKind.CROSSOVER_AT,
    TWICE: VerdictKind.CROSSOVER_AT,
}
CROSSINGS = {DEFAULT_CURVE: (5.97,), REVERSE: (32.7,), TWICE: (6.2, 25.3)}
SEEDS = range(2)
# Half of what the command takes: enough for these, and half the time of the tests.
BUDGET_S = 1800.0


@cache
def outcomes(curve: str, *, quick: bool = False) -> tuple[Outcome, ...]:
    """Runs that several tests look at."""
    budget_s = QUICK_BUDGET_S if quick else BUDGET_S
    return tuple(tried(Trial(curve, seed, budget_s, quick=quick)) for seed in SEEDS)


@pytest.mark.parametrize("curve", KINDS)
def test_the_verdict_is_the_true_one(curve: str) -> None:
    assert [outcome.kind for outcome in outcomes(curve)] == [KINDS[curve]] * len(SEEDS)


@pytest.mark.parametrize("curve", KINDS)
def test_estimated_speeds_are_near_the_true_ones(curve: str) -> None:
    errors = [abs(error) for each in outcomes(curve) for error in chain.from_iterable(each.errors.values())]
    assert statistics.median(errors) < 0.015
    assert max(errors) < 0.06


@pytest.mark.parametrize("curve", CROSSINGS)
def test_intervals_hold_the_true_crossings_and_are_narrower_than_a_doubling(curve: str) -> None:
    for outcome in outcomes(curve):
        assert len(outcome.crossings) == len(CROSSINGS[curve])
        for crossing, true in zip(outcome.crossings, CROSSINGS[curve], strict=True):
            assert crossing.low <= true <= crossing.high < 2.0 * crossing.low


@pytest.mark.parametrize("curve", CROSSINGS)
def test_the_crossing_is_told_within_a_tenth(curve: str) -> None:
    for outcome in outcomes(curve):
        assert [crossing.at for crossing in outcome.crossings] == pytest.approx(CROSSINGS[curve], rel=0.1)


@pytest.mark.parametrize("curve", [NEVER, ALWAYS, DEFAULT_CURVE])
def test_a_quick_run_gives_the_true_verdict_within_its_time(curve: str) -> None:
    for outcome in outcomes(curve, quick=True):
        assert outcome.kind is KINDS[curve]
        assert outcome.spent_s < 180.0
        assert all(outcome.covered)


def test_a_run_keeps_to_its_budget() -> None:
    assert all(outcome.spent_s <= outcome.trial.budget_s for curve in KINDS for outcome in outcomes(curve))


def test_the_same_seed_gives_the_same_run() -> None:
    first, *_ = outcomes(DEFAULT_CURVE)
    assert tried(first.trial) == first

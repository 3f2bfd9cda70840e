"""The policies on curves keep to the gates of docs/benchmarks/policies.md where they are hardest to keep.

scripts/prove_policies does it for all curves.
"""

from dataclasses import replace
from functools import cache

import pytest
from simulate.alternating import Alternating
from simulate.contests import STATIC, Contest, Score, held, policy_of
from simulate.exact import Case, bench_of, judged

from proxy.lab.engine import KV_TOKENS
from proxy.lab.simulation.arms import arm
from proxy.lab.simulation.arrivals import Gamma
from proxy.lab.simulation.sharing import Bounds
from proxy.lab.simulation.trial import Trial
from proxy.model import ROLES, SPECULATIVE, Placement
from proxy.routing import consolidate

# Speeds that cross twice; that cross once, sharply; that never cross; that cross the other way round.
TWICE, SHARPLY = "rtx6kpro_glm51_dcp4_ctx0", "h200_llama8b_sglang_tree_2_4_16"
NEVER, REVERSE = "seed", "rtx6kpro_qwen35_397b_awq_vllm_ctx64k"
# Requests a second in the mean of a calm and a rise, on SHARPLY: 3 and then 21.
STEEP_PER_S = 12.0


@cache
def score(curve: str, placement: str, load: float, kind: str = "poisson") -> Score:
    """One seed."""
    return held(Contest(curve, placement, load, kind, 1), 1500)


def above_the_better(found: Score, placement: str) -> float:
    return found.mean_s[policy_of(placement)] / min(found.mean_s[way] for way in STATIC) - 1.0


@pytest.mark.parametrize("curve", [TWICE, SHARPLY, NEVER, REVERSE])
@pytest.mark.parametrize("prompt", [0.0, 400.0])
def test_marginal_is_within_two_hundredths_of_the_exact_optimum(curve: str, prompt: float) -> None:
    found = judged(Case(curve, 0.3, prompt))
    assert found.counts
    assert found.regret["marginal"] <= 0.02


def test_the_cost_of_only_oneself_would_be_far_from_the_optimum() -> None:
    found = judged(Case(TWICE, 0.3, 0.0)).regret
    assert found["faster"] > 0.08 > 4 * found["marginal"]


def test_the_desk_decides_by_what_a_request_costs_all() -> None:
    found = held(Contest(TWICE, Placement.SEPARATE, 0.5, "poisson", 1, whole=True), 1500).mean_s
    assert found["marginal"] < 0.9 * min(found["faster"], found["first"], *map(found.__getitem__, STATIC))


@pytest.mark.parametrize(("curve", "load"), [(SHARPLY, 0.1), (SHARPLY, 0.7), (NEVER, 0.1), (NEVER, 0.7)])
def test_consolidate_is_as_good_as_the_better_engine_alone_at_both_ends(curve: str, load: float) -> None:
    assert above_the_better(score(curve, Placement.SHARED, load), Placement.SHARED) <= 0.02


def test_load_that_comes_and_goes_is_not_followed_to_an_engine_that_cannot_carry_it() -> None:
    found = score(SHARPLY, Placement.SHARED, 0.4, "alternating:60")
    assert above_the_better(found, Placement.SHARED) <= 0.1
    assert max(found.mean_s[way] for way in STATIC) > 3 * found.mean_s["consolidate"]


def most_on_speculation_in_a_rise() -> int:
    """Sixty seconds of calm, then steeply more than it can carry, while nothing like that has been before."""
    bench = bench_of(SHARPLY, Placement.SHARED)
    bounds = {role: Bounds(bench.max_in_flight, KV_TOKENS[role], bench.curve.prefill_tokens_per_s) for role in ROLES}
    trial = Trial(arm("consolidate", bench), bounds, Alternating(0.1, 0.7, 60.0).source(STEEP_PER_S, 1))
    return trial.run(0, 1500).most[SPECULATIVE]


def test_a_steep_rise_is_seen_before_it_has_piled_up(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = most_on_speculation_in_a_rise()
    monkeypatch.setattr(consolidate, "crowding", lambda *_: 0.0)
    assert seen < 0.75 * most_on_speculation_in_a_rise()


@pytest.mark.parametrize("placement", Placement)
def test_neither_engine_ever_holds_more_than_its_limit(placement: Placement) -> None:
    limit = 12
    bench = replace(bench_of(SHARPLY, placement), max_in_flight=limit)
    bounds = {role: Bounds(limit, KV_TOKENS[role], bench.curve.prefill_tokens_per_s) for role in ROLES}
    trial = Trial(arm(policy_of(placement), bench), bounds, Gamma(3.0).source(20.0, 1))
    times = trial.run(0, 1500)
    assert times.waited > 0, "or else the limit was never met"
    assert max(times.most.values()) == limit

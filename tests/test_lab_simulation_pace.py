"""Paces of engines as tables, and how much two of them can take."""

from itertools import accumulate
from random import Random
from statistics import fmean

import pytest

from proxy.errors import ConfigError
from proxy.lab.acceptance import Acceptance
from proxy.lab.curves import find, shipped
from proxy.lab.simulation.pace import Work, adaptive, capacity, paces
from proxy.model import BASELINE, ROLES, SPECULATIVE, Placement

KIMI, TREE = "rtx6kpro_kimi26_v1_dcp1_ctx0", "specdecodebench_sglang_qwen3-8b_gsm8k_tree_k21"
BARE = dict.fromkeys(ROLES, Work(256.0))


@pytest.mark.parametrize("name", shipped())
def test_every_curve_has_paces_that_give_the_speeds_it_was_measured_with(name: str) -> None:
    curve = find(name)
    both = paces(curve, 256)
    for role in ROLES:
        whole = [speed for speed in curve.speeds(role) if speed.concurrency == int(speed.concurrency) <= 256]
        # Where a bigger batch was measured with a shorter step, the longer one before holds.
        longest_s = accumulate((speed.concurrency / speed.tok_s for speed in whole), max)
        for speed, slowest_s in zip(whole, longest_s, strict=True):
            assert both[role].tok_s(int(speed.concurrency)) <= speed.tok_s * (1 + 1e-9)
            assert both[role].tok_s(int(speed.concurrency)) == pytest.approx(speed.concurrency / slowest_s)


def test_a_fit_takes_notice_of_context_and_a_table_does_not() -> None:
    curve = find("rtx6kpro_kimi26_v1_dcp1_ctx21k")
    short, long = (paces(curve, 8, context, fitted=True)[BASELINE].step_s[8] for context in (0.0, 50_000.0))
    assert long > 1.1 * short
    assert paces(curve, 8, 0.0) == paces(curve, 8, 50_000.0)


def test_a_fit_that_there_is_not_is_refused() -> None:
    with pytest.raises(ConfigError, match="has no fit"):
        paces(find("rtx6kpro_glm51_dcp4_ctx0"), 8, fitted=True)


def test_the_last_step_of_an_answer_yields_as_much_too_much_as_drawn_lengths_do() -> None:
    curve = find(KIMI)
    acceptance, rng, beyond = Acceptance(curve.tokens_per_step, curve.num_steps + 1), Random(1), []
    for _ in range(6000):
        tokens, length = 0, 40 + rng.randrange(40)
        while tokens < length:
            tokens += acceptance.draw(rng, 1)[0]
        beyond.append(tokens - length)
    assert paces(curve, 1)[SPECULATIVE].surplus_tokens == pytest.approx(fmean(beyond), rel=0.05)
    assert paces(curve, 1)[BASELINE].surplus_tokens == 0.0


def test_an_adaptive_engine_is_the_faster_one_at_each_batch_less_its_tax() -> None:
    curve = find(TREE)
    both = paces(curve, 128)
    taxed = adaptive(both, 0.1)
    for batch in (1, 8, 32, 64, 128):
        drafted, plain = (both[role].tok_s(batch) for role in ROLES)
        assert taxed.tok_s(batch) == pytest.approx(max(drafted, plain / 1.1))
    assert (taxed.tokens[1], taxed.tokens[128]) == (curve.tokens_per_step, 1.0)


def test_capacities_add_up_on_separate_gpus_alone() -> None:
    both = paces(find(KIMI), 128)
    peaks = [max(both[role].tok_s(batch) for batch in range(129)) / 256.0 for role in ROLES]
    assert capacity(both, Placement.SEPARATE, BARE) == pytest.approx(sum(peaks))
    assert capacity(both, Placement.SHARED, BARE) == pytest.approx(max(peaks))


def test_prefill_takes_its_time_from_capacity() -> None:
    both = paces(find(KIMI), 128)
    bare = capacity(both, Placement.SHARED, BARE)
    filled = capacity(both, Placement.SHARED, dict.fromkeys(ROLES, Work(256.0, 0.5)))
    assert 1.0 / filled == pytest.approx(1.0 / bare + 0.5)

import pytest

from proxy.lab import curves
from proxy.lab.calibration.values import Arm, Cell, Condition, Ending, Measurement, Prefix, Source, Span
from proxy.lab.calibration.virtual.stand import VirtualStand

SPAN = Span(settle_s=2.0, window_s=10.0)
WIDE = dict.fromkeys(Arm, 256)


def _cell(arm: Arm, concurrency: int, repeat: int = 0, condition: Condition | None = None) -> Cell:
    return Cell(condition or Condition(1024), concurrency, arm, repeat)


def _stand(seed: int = 1, curve: str = "h200_llama8b_sglang_tree_2_4_16", **options: object) -> VirtualStand:
    return VirtualStand(curves.find(curve), seed, **{"limits": WIDE, **options})  # type: ignore[arg-type]


async def _measure(stand: VirtualStand, *cells: Cell, span: Span = SPAN) -> list[Measurement]:
    return [await stand.measure(cell, span) for cell in cells]


@pytest.mark.parametrize("arm", [Arm.SPECULATIVE, Arm.BASELINE])
@pytest.mark.parametrize("concurrency", [1, 16, 100])
async def test_a_cell_gives_the_speed_of_the_curve_where_nothing_scatters(arm: Arm, concurrency: int) -> None:
    stand = _stand(jitter=0.0, cell_noise=0.0)
    (found,) = await _measure(stand, _cell(arm, concurrency), span=Span(2.0, 40.0))
    assert found.tok_s == pytest.approx(stand.true_tok_s(arm, concurrency), rel=0.03)


@pytest.mark.parametrize("concurrency", [1, 4, 16])
def test_the_true_speed_is_the_published_one(concurrency: int) -> None:
    stand = _stand()
    (point,) = [point for point in stand.curve.points if point.concurrency == concurrency]
    assert stand.true_tok_s(Arm.SPECULATIVE, concurrency) == pytest.approx(point.speculative)
    assert stand.true_tok_s(Arm.BASELINE, concurrency) == pytest.approx(point.baseline)


async def test_a_cell_does_not_depend_on_what_was_measured_before_it() -> None:
    cell = _cell(Arm.SPECULATIVE, 8)
    (alone,) = await _measure(_stand(), cell)
    *_, after = await _measure(_stand(), _cell(Arm.BASELINE, 64), _cell(Arm.SPECULATIVE, 64), cell)
    assert after.tok_s == pytest.approx(alone.tok_s, rel=1e-9)


async def test_repeats_and_seeds_differ() -> None:
    repeats = await _measure(_stand(), *(_cell(Arm.BASELINE, 8, repeat) for repeat in range(3)))
    (other,) = await _measure(_stand(seed=2), _cell(Arm.BASELINE, 8))
    assert len({found.tok_s for found in (*repeats, other)}) == 4


async def test_the_same_cell_of_two_curves_has_its_own_noise() -> None:
    cell = _cell(Arm.BASELINE, 8)
    errors = []
    for curve in ("seed", "rtx6kpro_glm51_dcp4_ctx0", "h200_llama8b_sglang_tree_2_4_16"):
        stand = _stand(curve=curve, cell_noise=0.1, jitter=0.0)
        (found,) = await _measure(stand, cell)
        errors.append(round(found.tok_s / stand.true_tok_s(cell.arm, 8), 2))
    assert len(set(errors)) == 3


async def test_cell_noise_scatters_repeats_and_nothing_else_does_without_jitter() -> None:
    cells = [_cell(Arm.BASELINE, 8, repeat) for repeat in range(8)]
    calm, rough = [
        [found.tok_s for found in await _measure(_stand(jitter=0.0, cell_noise=noise), *cells)] for noise in (0.0, 0.05)
    ]
    assert max(calm) / min(calm) < 1.001
    assert max(rough) / min(rough) > 1.05


async def test_moments_tell_the_batch_and_the_tokens_of_a_step() -> None:
    speculative, baseline = await _measure(_stand(), _cell(Arm.SPECULATIVE, 16), _cell(Arm.BASELINE, 16))
    assert speculative.source is baseline.source is Source.MOMENTS
    assert baseline.tokens_per_step == pytest.approx(1.0)
    assert speculative.tokens_per_step == pytest.approx(curves.find(_stand().curve.name).tokens_per_step, rel=0.05)
    assert 15.0 < (speculative.batch or 0.0) <= 16.0
    assert not speculative.queued


async def test_prefill_slows_what_clients_get_and_not_the_decode_speed() -> None:
    fast, slow = [
        (await _measure(_stand(prefill_tokens_per_s=rate), _cell(Arm.BASELINE, 16)))[0] for rate in (1e9, 4000.0)
    ]
    assert slow.gross_tok_s < 0.8 * fast.gross_tok_s
    assert slow.tok_s == pytest.approx(fast.tok_s, rel=0.03)


async def test_engines_without_moments_tell_what_clients_see() -> None:
    (found,) = await _measure(_stand(moments=False), _cell(Arm.BASELINE, 16))
    assert (found.source, found.decode_tok_s, found.batch) == (Source.USAGE, None, None)
    assert found.tok_s == found.gross_tok_s == pytest.approx(found.tokens / found.window_s)


async def test_a_cell_with_a_prefill_before_every_step_tells_what_clients_see() -> None:
    short = Condition(1024, max_tokens=2)
    (found,) = await _measure(_stand(), _cell(Arm.BASELINE, 32, condition=short), span=Span(0.5, 1.0))
    assert (found.source, found.decode_tok_s, found.tokens_per_step) == (Source.USAGE, None, None)
    assert found.tok_s == found.gross_tok_s > 0


async def test_a_cell_beyond_the_limit_is_queued_and_as_fast_as_the_limit() -> None:
    stand = _stand(limits={Arm.SPECULATIVE: 8})
    beyond, within = await _measure(stand, _cell(Arm.SPECULATIVE, 32), _cell(Arm.SPECULATIVE, 8))
    assert (beyond.queued, within.queued) == (True, False)
    assert beyond.batch == pytest.approx(8.0, rel=0.05)
    assert stand.true_tok_s(Arm.SPECULATIVE, 32) == stand.true_tok_s(Arm.SPECULATIVE, 8)


async def test_limits_are_those_of_engines_that_nobody_told_where_none_are_given() -> None:
    facts = await _stand(limits=None).facts()
    assert {arm: fact.max_running_requests for arm, fact in facts.items()} == {"speculative": 48, "baseline": 2048}
    assert facts[Arm.SPECULATIVE].speculative_algorithm == "EAGLE3"
    assert facts[Arm.BASELINE].speculative_algorithm is None


async def test_warm_prompts_are_found_in_the_cache_and_cold_ones_are_not() -> None:
    warm, cold = await _measure(
        _stand(), *(_cell(Arm.BASELINE, 4, condition=Condition(4096, prefix=prefix)) for prefix in Prefix)
    )
    assert (warm.cache_hit_rate or 0.0) > 0.8
    assert cold.cache_hit_rate == 0.0
    assert (warm.ttft_s or cold.ttft_s).p50 < 0.5 * (cold.ttft_s or warm.ttft_s).p50  # type: ignore[union-attr]


async def test_natural_answers_differ_in_length() -> None:
    fixed, natural = await _measure(
        _stand(), *(_cell(Arm.BASELINE, 16, condition=Condition(1024, ending=ending)) for ending in Ending)
    )
    assert natural.requests > fixed.requests > 0


async def test_the_clock_moves_by_the_span_however_short_the_window_was_cut() -> None:
    stand = _stand()
    (found,) = await _measure(stand, _cell(Arm.BASELINE, 16), span=Span(20.0, 600.0))
    assert found.window_s < 600.0
    assert stand.now_s() == found.spent_s
    assert 620.0 < found.spent_s < 625.0


async def test_the_whole_window_is_run_where_that_is_asked_for() -> None:
    (found,) = await _measure(_stand(whole=True), _cell(Arm.BASELINE, 1), span=Span(2.0, 100.0))
    assert found.window_s == pytest.approx(100.0, rel=0.01)


async def test_an_adaptive_engine_is_the_faster_of_the_two_less_its_tax() -> None:
    stand = _stand(adaptive_tax=0.1, jitter=0.0, cell_noise=0.0)
    for concurrency in (1, 128):
        best = max(stand.true_tok_s(arm, concurrency) for arm in (Arm.SPECULATIVE, Arm.BASELINE))
        (found,) = await _measure(stand, _cell(Arm.ADAPTIVE, concurrency))
        assert found.tok_s == pytest.approx(best / 1.1, rel=0.02)


async def test_drift_slows_both_arms_as_time_passes() -> None:
    stand = _stand(drift=0.5, jitter=0.0, cell_noise=0.0)
    before, _, after = await _measure(
        stand, _cell(Arm.BASELINE, 8), _cell(Arm.SPECULATIVE, 8), _cell(Arm.BASELINE, 8, 1), span=Span(0.0, 3600.0)
    )
    assert after.tok_s == pytest.approx(before.tok_s * 0.37, rel=0.05)


async def test_nothing_is_left_on_an_engine_after_a_cell() -> None:
    stand = _stand()
    await _measure(stand, _cell(Arm.BASELINE, 64))
    await stand.rest()
    (alone,) = await _measure(stand, _cell(Arm.BASELINE, 1))
    assert alone.batch == 1.0

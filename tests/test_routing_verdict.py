"""The verdict on paired measurements: what is believed, where signs change, and what follows for thresholds."""

from itertools import pairwise
from math import exp, inf, log, nan
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from proxy.lab import curves
from proxy.model import Role
from proxy.routing.verdict import Band, Contrast, Crossing, Verdict, VerdictKind, band, describe, judge

NEVER, ALWAYS = VerdictKind.NEVER_SPECULATE, VerdictKind.ALWAYS_SPECULATE
CROSSOVER, UNKNOWN = VerdictKind.CROSSOVER_AT, VerdictKind.UNKNOWN

MEANS = st.floats(-3, 3, allow_nan=False)
WIDTHS = st.one_of(st.floats(0, 2), st.just(inf))
CELL = st.builds(
    lambda at, mean, down, up: Contrast(at, mean, mean - down, mean + up, 6),
    st.integers(1, 300).map(float),
    MEANS,
    WIDTHS,
    WIDTHS,
)
CELLS = st.lists(CELL, max_size=20)
# One for each number in flight, as what is measured comes to: of several the order would matter.
CELLS_APART = st.lists(CELL, min_size=1, max_size=20, unique_by=lambda each: each.concurrency)
ANY_CELLS = st.lists(
    st.builds(
        Contrast,
        st.floats(min_value=0, exclude_min=True, allow_infinity=False),
        st.floats(allow_nan=False, allow_infinity=False),
        st.floats(allow_nan=False),
        st.floats(allow_nan=False),
    ),
    max_size=12,
)


def cells(ratios: dict[int, float], half: float = 0.02, wide: dict[int, float] | None = None) -> list[Contrast]:
    """Contrasts from ratios by concurrency, with half-widths in ln; `wide` names those that differ."""
    made = []
    for at, ratio in ratios.items():
        width = (wide or {}).get(at, half)
        made.append(Contrast(at, log(ratio), log(ratio) - width, log(ratio) + width, 6))
    return made


def published(name: str) -> list[Contrast]:
    """A shipped curve as contrasts with intervals of 2 %."""
    return cells({int(point.concurrency): point.speculative / point.baseline for point in curves.find(name).points})


def mirrored(contrasts: list[Contrast]) -> list[Contrast]:
    return [each._replace(log_ratio=-each.log_ratio, low=-each.high, high=-each.low) for each in contrasts]


# ---------------------------------------------------------------- what holds for all


@given(ANY_CELLS)
def test_any_finite_contrasts_have_a_verdict_a_sentence_and_a_band_or_none(contrasts: list[Contrast]) -> None:
    verdict = judge(contrasts)
    assert describe(verdict).endswith(".")
    assert verdict.reason
    assert (verdict.kind is CROSSOVER) == bool(verdict.crossings)
    found = band(contrasts, verdict)
    assert found is None or 0 <= found.enter_at < found.leave_at


@given(CELLS)
def test_crossings_rise_and_alternate_and_lie_in_their_intervals(contrasts: list[Contrast]) -> None:
    crossings = judge(contrasts).crossings
    for each in crossings:
        assert each.low <= each.at <= each.high
    for one, other in pairwise(crossings):
        assert one.high <= other.low
        assert one.faster_above is other.faster_above.other


@given(CELLS)
def test_the_mirrored_measurements_have_the_mirrored_verdict(contrasts: list[Contrast]) -> None:
    verdict, other = judge(contrasts), judge(mirrored(contrasts))
    assert other.kind is {NEVER: ALWAYS, ALWAYS: NEVER}.get(verdict.kind, verdict.kind)
    assert [each._replace(faster_above=each.faster_above.other) for each in other.crossings] == list(verdict.crossings)


@given(CELLS_APART, st.randoms())
def test_the_order_of_the_measurements_does_not_matter(contrasts: list[Contrast], chance: object) -> None:
    mixed = list(contrasts)
    chance.shuffle(mixed)  # type: ignore[attr-defined]
    assert judge(mixed) == judge(contrasts)


@given(CELLS)
def test_never_is_not_said_while_a_cell_far_from_zero_favours_speculation(contrasts: list[Contrast]) -> None:
    if any(each.log_ratio > max(0.03, 1.5 * each.half_width) and each.low > 0 for each in contrasts):
        assert judge(contrasts).kind is not VerdictKind.NEVER_SPECULATE


@given(CELLS, MEANS, st.floats(0.001, 0.99))
def test_one_noisy_cell_alone_decides_nothing(contrasts: list[Contrast], mean: float, share: float) -> None:
    """Its interval excludes zero, but not with room; the others say nothing."""
    assume(abs(mean) > 1e-6)
    half = abs(mean) / (1 + share / 2)
    silent = [each._replace(low=-inf, high=inf) for each in contrasts]
    assert judge([*silent, Contrast(7, mean, mean - half, mean + half, 6)]).kind is UNKNOWN


@given(CELLS_APART, st.integers(0, 19))
def test_a_cell_that_opens_never_narrows_the_interval(contrasts: list[Contrast], index: int) -> None:
    index %= len(contrasts)
    opened = [each._replace(low=-inf, high=inf) if i == index else each for i, each in enumerate(contrasts)]
    before, after = judge(contrasts).crossings, judge(opened).crossings
    if len(before) == len(after) == 1:
        assert after[0].low <= before[0].low <= before[0].high <= after[0].high


@given(CELLS)
def test_a_band_lies_around_its_crossing(contrasts: list[Contrast]) -> None:
    verdict = judge(contrasts)
    found = band(contrasts, verdict)
    down = [each for each in verdict.crossings if each.faster_above is Role.BASELINE]
    assert (found is None) == (not down)
    if found is not None:
        assert found.enter_at - 1e-9 <= down[0].at <= found.leave_at + 1e-9


@given(CELLS_APART, st.floats(0.01, 0.5), st.floats(0.01, 0.5))
def test_a_band_grows_with_the_contrast_that_is_asked_for(contrasts: list[Contrast], one: float, other: float) -> None:
    verdict = judge(contrasts)
    narrow = band(contrasts, verdict, min_contrast=min(one, other))
    wide = band(contrasts, verdict, min_contrast=max(one, other))
    if narrow is not None and wide is not None:
        assert wide.enter_at <= narrow.enter_at < narrow.leave_at <= wide.leave_at


# ---------------------------------------------------------------- examples


@pytest.mark.parametrize(
    ("name", "kind", "crossings"),
    [
        ("seed", NEVER, []),
        ("hochelaga8b_rtx5090_k2", NEVER, []),
        ("amd_mi355x_kimi25_eagle3_bf16", ALWAYS, []),
        ("rtx6kpro_kimi26_v1_dcp1_ctx0", CROSSOVER, [(104, "baseline")]),
        ("rtx6kpro_kimi26_v1_dcp1_ctx10k", CROSSOVER, [(38, "baseline")]),
        ("rtx6kpro_kimi26_v1_dcp1_ctx21k", CROSSOVER, [(21, "baseline")]),
        ("rtx6kpro_kimi26_v1_dcp1_ctx41k", CROSSOVER, [(2, "baseline")]),
        ("rtx6kpro_glm5_sglang_b12x_ctx0", CROSSOVER, [(4, "baseline"), (11, "speculative")]),
        ("rtx6kpro_qwen35_397b_awq_vllm_ctx64k", CROSSOVER, [(32, "speculative")]),
    ],
)
def test_published_curves_have_their_known_verdict(name: str, kind: str, crossings: list[tuple[int, str]]) -> None:
    verdict = judge(published(name))
    assert verdict.kind == kind
    assert [(int(each.at), each.faster_above) for each in verdict.crossings] == crossings


def test_a_cliff_is_kept_as_two_crossings() -> None:
    """GLM-5.1 on eight RTX PRO 6000: kernels that are slow from 8 to 16."""
    verdict = judge(cells({1: 1.43, 4: 1.41, 8: 0.81, 16: 0.76, 32: 1.15, 64: 1.12}))
    assert [(each.low, each.high) for each in verdict.crossings] == [(4, 8), (16, 32)]
    assert describe(verdict) == (
        "Baseline overtakes at 7 sequences in flight (95 % interval 4 to 8), speculation at 26 (16 to 32)."
    )


def test_one_lone_cell_far_from_zero_is_a_cliff() -> None:
    verdict = judge(cells({1: 1.4, 4: 1.4, 8: 0.8, 16: 1.3}))
    assert [each.faster_above for each in verdict.crossings] == [Role.BASELINE, Role.SPECULATIVE]


@pytest.mark.parametrize(
    ("low", "mean", "high", "kind"),
    [(0.7, 0.9, 1.2, UNKNOWN), (0.7, 1.02, 1.4, UNKNOWN), (0.96, 0.99, 1.02, ALWAYS), (0.95, 1.1, 1.3, ALWAYS)],
)
def test_one_sign_alone_is_not_enough_while_another_cell_leaves_room_for_more_than_twice_the_margin(
    low: float, mean: float, high: float, kind: VerdictKind
) -> None:
    unsure = Contrast(16, log(mean), log(low), log(high), 3)
    assert judge([*cells({1: 1.4, 4: 1.4}), unsure]).kind is kind


def test_one_lone_cell_near_zero_is_noise() -> None:
    verdict = judge(cells({1: 1.4, 4: 1.4, 8: 0.975, 16: 1.3}))
    assert verdict.kind is ALWAYS
    assert "undecided at 8" in verdict.reason


def test_a_lone_cell_within_the_margin_is_not_believed_however_narrow_its_interval() -> None:
    verdict = judge(cells({1: 1.0, 4: 1.02, 8: 1.0}, half=0.001))
    assert verdict == Verdict(UNKNOWN, reason="the two do not differ by more than 3 %")


def test_two_neighbours_that_are_sure_are_believed_without_room() -> None:
    assert judge(cells({4: 0.975, 8: 0.975})).kind is NEVER
    assert judge(cells({4: 0.975, 6: 1.0, 8: 0.975})).kind is UNKNOWN


def test_where_all_are_tied_the_verdict_is_unknown_and_says_so() -> None:
    verdict = judge(cells({1: 1.0, 2: 1.005, 4: 0.995}, half=0.01))
    assert verdict == Verdict(UNKNOWN, reason="the two do not differ by more than 3 %")
    assert describe(verdict) == "Not known where speculation stops paying: the two do not differ by more than 3 %."


@pytest.mark.parametrize(
    ("ratio", "half", "kind"),
    [(1.3, 0.05, ALWAYS), (0.7, 0.05, NEVER), (1.3, 0.2, UNKNOWN), (1.3, inf, UNKNOWN), (1.0, 0.01, UNKNOWN)],
)
def test_a_single_cell_decides_only_with_room(ratio: float, half: float, kind: VerdictKind) -> None:
    assert judge(cells({8: ratio}, half)).kind is kind


def test_two_cells_of_different_sign_have_their_crossing_between_them() -> None:
    verdict = judge(cells({4: 1.25, 16: 0.8}))
    assert verdict.crossings == (Crossing(pytest.approx(8.0), 4, 16, Role.BASELINE),)
    assert verdict.reason == "speculation is 25 % faster at 4 in flight, 20 % slower at 16"


def test_the_crossing_goes_through_the_open_cells_between() -> None:
    verdict = judge(cells({4: 1.25, 8: 0.99, 16: 0.8}))
    assert (verdict.crossings[0].low, verdict.crossings[0].high) == (4, 16)
    assert verdict.crossings[0].at == pytest.approx(4 * exp(log(2) * log(1.25) / (log(1.25) - log(0.99))))


def test_what_was_measured_once_says_nothing() -> None:
    verdict = judge(cells({1: 1.5, 8: 0.6}, half=inf))
    assert verdict.kind is UNKNOWN
    assert "give it more time" in verdict.reason
    assert judge([]).reason == "nothing was measured on both"


@pytest.mark.parametrize(
    "odd",
    [
        Contrast(0, 0.1, 0, 1),
        Contrast(-1, 0.1, 0, 1),
        Contrast(nan, 0.1, 0, 1),
        Contrast(inf, 0.1, 0, 1),
        Contrast(1, nan, 0, 1),
        Contrast(1, inf, 0, 1),
        Contrast(1, 0.1, nan, 1),
        Contrast(1, 0.1, 0, nan),
    ],
)
def test_a_contrast_that_is_no_number_is_refused(odd: Contrast) -> None:
    with pytest.raises(ValueError, match=r"a contrast needs|an interval that is not known"):
        judge([*cells({4: 1.2}), odd])


# ---------------------------------------------------------------- the band


def test_the_band_is_where_the_difference_is_small() -> None:
    contrasts = cells({4: 1.25, 16: 0.8}, half=0.02)
    # ln ratio falls by 2 ln 1.25 over ln 4; it is below 0.05 within a factor of 1.168 around 8.
    assert band(contrasts, judge(contrasts)) == Band(6, 10)


def test_wide_intervals_widen_the_band() -> None:
    contrasts = cells({2: 1.4, 4: 1.25, 8: 1.0, 16: 0.8, 32: 0.7}, wide={4: 0.3, 16: 0.3})
    assert band(contrasts, judge(contrasts)) == Band(3, 19)


def test_where_one_side_is_never_clear_the_band_goes_to_its_end() -> None:
    contrasts = cells({1: 1.04, 2: 1.04, 4: 0.96, 8: 0.96}, half=0.01)
    assert band(contrasts, judge(contrasts)) == Band(0, 8)


def test_the_band_ends_where_speculation_is_faster_again() -> None:
    contrasts = cells({2: 1.3, 4: 1.3, 8: 0.97, 16: 0.97, 32: 1.3}, half=0.01)
    verdict = judge(contrasts)
    found = band(contrasts, verdict)
    assert found is not None
    assert verdict.crossings[1].at <= found.leave_at < verdict.crossings[1].at + 1


@pytest.mark.parametrize("ratios", [{4: 0.8, 16: 1.25}, {4: 0.8, 16: 0.7}, {4: 1.2, 16: 1.1}, {4: 1.0, 16: 1.0}])
def test_without_a_crossing_to_baseline_there_is_no_band(ratios: dict[int, float]) -> None:
    contrasts = cells(ratios)
    assert band(contrasts, judge(contrasts)) is None


# ---------------------------------------------------------------- the sentence


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        (
            Verdict(CROSSOVER, (Crossing(5.6, 5, 7, Role.BASELINE),)),
            "Baseline overtakes at 6 sequences in flight (95 % interval 5 to 7).",
        ),
        (
            Verdict(CROSSOVER, (Crossing(6.0, 5, 7, Role.SPECULATIVE),)),
            "Speculation overtakes at 6 sequences in flight (95 % interval 5 to 7).",
        ),
        (Verdict(NEVER, reason="it is slower"), "Never speculate: it is slower."),
        (Verdict(ALWAYS, reason="it is faster"), "Always speculate: it is faster."),
        (Verdict(NEVER), "Never speculate."),
    ],
)
def test_a_verdict_is_said_in_one_sentence(verdict: Verdict, said: str) -> None:
    assert describe(verdict) == said


def test_never_is_said_with_its_numbers() -> None:
    assert describe(judge(published("seed"))) == (
        "Never speculate: speculation is 12.7 % slower at 1 in flight and 54.2 % slower at 250, and slower at each of "
        "13 concurrencies."
    )


def test_speculation_that_is_twice_as_fast_is_said_in_times() -> None:
    assert judge(cells({1: 3.42, 64: 1.39})).reason.startswith(
        "speculation is 3.42 times as fast at 1 in flight and 39 %"
    )


def test_one_sure_cell_is_said_with_its_number() -> None:
    assert describe(judge(cells({8: 0.7}))) == "Never speculate: speculation is 30 % slower at 8 in flight."


@pytest.mark.parametrize("odd", [{"repeats": 2}, {"predicted": True}])
def test_a_span_that_ends_at_an_assumed_interval_is_not_called_one_of_95_percent(odd: dict[str, Any]) -> None:
    low, inside, high = cells({4: 1.25, 8: 1.0, 16: 0.8})
    assert "95 % interval 4 to 16" in describe(judge([low, inside._replace(**odd), high]))
    said = describe(judge([low, inside, high._replace(**odd)]))
    assert said == "Baseline overtakes at 8 sequences in flight (about 4 to 16: too few repeats for a 95 % interval)."

"""Intervals over repeats: what they cover, when there is none, and which repeats are compared with which."""

import math
from dataclasses import replace
from random import Random

import pytest
from fakes.cells import measured
from hypothesis import given
from hypothesis import strategies as st

from proxy.lab.calibration.deciding.aim import Aim
from proxy.lab.calibration.deciding.estimates import Book, Interval, common_spread, interval, lent_spread
from proxy.lab.calibration.deciding.past import pair
from proxy.lab.calibration.values import Arm, Measurement
from proxy.routing.verdict import MIN_REPEATS

AIM = Aim()
CONDITION = AIM.main(1024)
finite = st.floats(-5.0, 5.0)


def repeats(arm: Arm, *speeds: float, concurrency: int = 4) -> list[Measurement]:
    cells = [next(c for c in pair(AIM, CONDITION, concurrency, k) if c.arm is arm) for k in range(len(speeds))]
    return [measured(cell, speed) for cell, speed in zip(cells, speeds, strict=True)]


def test_the_interval_is_students_t() -> None:
    found = interval([0.1, 0.2, 0.3])
    # The 97.5 % point of t with two degrees of freedom is 4.302653.
    half = 4.302653 * 0.1 / math.sqrt(3)
    assert (found.mean, found.low, found.high) == pytest.approx((0.2, 0.2 - half, 0.2 + half), rel=1e-6)


def test_95_percent_intervals_cover_the_truth_in_95_percent_of_runs() -> None:
    rng = Random(7)
    runs = [interval([rng.gauss(0.3, 0.05) for _ in range(4)]) for _ in range(4000)]
    covered = sum(run.low <= 0.3 <= run.high for run in runs) / len(runs)
    assert covered == pytest.approx(0.95, abs=0.012)


@given(values=st.lists(finite, min_size=1, max_size=2))
def test_fewer_than_three_repeats_have_no_interval(values: list[float]) -> None:
    found = interval(values)
    assert (found.low, found.high) == (-math.inf, math.inf)
    assert min(values) - 1e-9 <= found.mean <= max(values) + 1e-9


@given(values=st.lists(finite, min_size=MIN_REPEATS, max_size=8), shift=finite)
def test_intervals_move_with_their_values(values: list[float], shift: float) -> None:
    one, other = interval(values), interval([value + shift for value in values])
    assert one.low <= one.mean <= one.high
    assert other.mean - one.mean == pytest.approx(shift, abs=1e-9)
    assert other.half_width == pytest.approx(one.half_width, abs=1e-6)


def _repeated_until_narrow(rng: Random, *, borrowing: bool) -> list[Interval]:
    """Cells of a sweep, the truth 0, in which each is repeated until its interval is narrow: as the plan does."""
    cells = [[rng.gauss(0.0, 0.025) for _ in range(MIN_REPEATS)] for _ in range(12)]
    while True:
        common = common_spread(cells) if borrowing else None
        found = [interval(values, common) for values in cells]
        wide = [values for values, each in zip(cells, found, strict=True) if each.half_width > 0.02 and len(values) < 8]
        if not wide:
            return found
        for values in wide:
            values.append(rng.gauss(0.0, 0.025))


def test_intervals_cover_the_truth_though_measuring_ends_when_they_are_narrow_since_cells_share_their_spread() -> None:
    covered = {}
    for borrowing in (False, True):
        rng = Random(5)
        found = [each for _ in range(150) for each in _repeated_until_narrow(rng, borrowing=borrowing)]
        covered[borrowing] = sum(each.low <= 0.0 <= each.high for each in found) / len(found)
    assert covered[False] < 0.935
    assert covered[True] > 0.945


def test_three_repeats_that_agree_by_chance_do_not_make_an_interval_of_no_width() -> None:
    rng = Random(2)
    scattered = [
        repeats(arm, *(100.0 * math.exp(rng.gauss(0.0, 0.02)) for _ in range(3)), concurrency=at)
        for at in (1, 2, 3)
        for arm in (Arm.SPECULATIVE, Arm.BASELINE)
    ]
    agreed = [*repeats(Arm.SPECULATIVE, 100.0, 100.0, 100.0), *repeats(Arm.BASELINE, 100.0, 100.0, 100.0)]
    book = Book(CONDITION, [*agreed, *(one for group in scattered for one in group)])
    *_, contrast = book.contrasts(Arm.SPECULATIVE, Arm.BASELINE)
    *_, point = book.curve(Arm.BASELINE)
    assert contrast.concurrency == point.concurrency == 4
    assert contrast.half_width > 0.01
    assert point.high is not None
    assert point.high > 1.005 * point.tok_s


def test_too_few_repeats_in_all_lend_nothing() -> None:
    assert common_spread([[0.1, 0.2, 0.3], [0.1, 0.2]]) is None
    assert common_spread([[0.1, 0.2, 0.3]] * 3) == pytest.approx((0.01, 6))


def test_a_noisy_end_of_the_sweep_is_not_told_by_the_spread_of_quiet_cells_far_away() -> None:
    noisy, quiet = [0.3, 0.0, -0.3], [0.01, 0.0, -0.01]
    groups = {1: noisy, 2: noisy, 3: noisy, 4: noisy, 16: quiet, 32: quiet, 64: quiet, 128: quiet}
    assert lent_spread(groups, 1) == common_spread([noisy] * 4)


def test_a_quiet_end_of_the_sweep_is_told_by_all_since_its_quiet_may_be_chance() -> None:
    noisy, quiet = [0.3, 0.0, -0.3], [0.01, 0.0, -0.01]
    groups = {1: noisy, 2: noisy, 3: noisy, 4: noisy, 16: quiet, 32: quiet, 64: quiet, 128: quiet}
    assert lent_spread(groups, 128) == common_spread(groups.values())


def test_a_few_repeats_lend_nothing() -> None:
    assert lent_spread({1: [0.1, 0.2], 2: [0.1, 0.2]}, 1) is None


def clients_got(measurement: Measurement, tok_s: float) -> Measurement:
    """The same cell of an engine that tells no decode moments."""
    return replace(measurement, gross_tok_s=tok_s, decode_tok_s=None)


def test_arms_are_compared_by_what_clients_got_where_one_engine_does_not_tell_its_decoding() -> None:
    silent = [clients_got(one, 90.0) for one in repeats(Arm.BASELINE, 1.0, 1.0, 1.0)]
    telling = [replace(one, gross_tok_s=180.0) for one in repeats(Arm.SPECULATIVE, 220.0, 220.0, 220.0)]
    book = Book(CONDITION, silent + telling)
    (contrast,) = book.contrasts(Arm.SPECULATIVE, Arm.BASELINE)
    assert book.gross
    assert contrast.log_ratio == pytest.approx(math.log(2.0))
    assert book.curve(Arm.SPECULATIVE)[0].tok_s == pytest.approx(180.0)


def test_a_cell_without_decode_moments_does_not_speak_among_those_that_have_them() -> None:
    first, *others = repeats(Arm.BASELINE, 100.0, 100.0, 100.0)
    book = Book(CONDITION, [clients_got(first, 50.0), *others])
    assert not book.gross
    assert dict(book.repeats(4, Arm.BASELINE)) == pytest.approx({1: 100.0, 2: 100.0})


def test_where_an_arm_hardly_ever_tells_its_decoding_it_has_no_speed_at_all() -> None:
    full = [replace(one, decode_tok_s=None) for one in repeats(Arm.SPECULATIVE, 1.0, 1.0, concurrency=250)]
    lucky = repeats(Arm.SPECULATIVE, 300.0, 310.0, 320.0, concurrency=250)[2:]
    cells = [*repeats(Arm.SPECULATIVE, 100.0, 100.0, 100.0), *full, *lucky]
    cells += [*repeats(Arm.BASELINE, 90.0, 90.0, 90.0), *repeats(Arm.BASELINE, 200.0, 200.0, 200.0, concurrency=250)]

    book = Book(CONDITION, cells)

    assert [point.concurrency for point in book.curve(Arm.SPECULATIVE)] == [4]
    assert [point.concurrency for point in book.curve(Arm.BASELINE)] == [4, 250]
    assert [one.concurrency for one in book.contrasts(Arm.SPECULATIVE, Arm.BASELINE)] == [4]


def test_a_batch_that_is_a_little_short_of_what_was_asked_makes_no_arm_look_slower() -> None:
    def speed(batch: float) -> float:
        return 100.0 * batch**0.6

    cells = []
    for arm, share in ((Arm.SPECULATIVE, 0.95), (Arm.BASELINE, 0.99)):
        for at in (2, 8, 32):
            of_arm = repeats(arm, *[speed(share * at)] * 3, concurrency=at)
            cells += [replace(one, batch=share * at) for one in of_arm]
    book = Book(CONDITION, cells)
    assert [point.tok_s for point in book.curve(Arm.SPECULATIVE)] == pytest.approx([speed(at) for at in (2, 8, 32)])
    assert [one.log_ratio for one in book.contrasts(Arm.SPECULATIVE, Arm.BASELINE)] == pytest.approx([0.0] * 3)


def test_a_queued_cell_is_not_carried_to_what_the_engine_never_ran() -> None:
    cells = [replace(one, batch=2.0, queued=True) for one in repeats(Arm.BASELINE, 200.0, 200.0, 200.0)]
    below = [replace(one, batch=2.0) for one in repeats(Arm.BASELINE, 120.0, 120.0, 120.0, concurrency=2)]
    low, high = Book(CONDITION, cells + below).curve(Arm.BASELINE)
    assert (low.tok_s, high.tok_s) == pytest.approx((120.0, 200.0))


def test_only_repeats_of_the_same_number_are_compared() -> None:
    baseline = repeats(Arm.BASELINE, 100.0, 110.0, 120.0)
    speculative = repeats(Arm.SPECULATIVE, 200.0, 220.0, 240.0, 999.0)
    (contrast,) = Book(CONDITION, baseline + speculative).contrasts(Arm.SPECULATIVE, Arm.BASELINE)
    assert contrast.repeats == 3
    assert contrast.log_ratio == pytest.approx(math.log(2.0))
    # Drift that both share is no noise on their ratio.
    assert contrast.high - contrast.low == pytest.approx(0.0, abs=1e-9)


def test_cells_that_failed_or_were_disturbed_are_not_used() -> None:
    good = repeats(Arm.BASELINE, 100.0, 100.0)
    bad = [replace(good[0], cell=good[0].cell._replace(repeat=7), decode_tok_s=1.0, errors={"cut": 1})]
    bad += [replace(good[0], cell=good[0].cell._replace(repeat=8), decode_tok_s=1.0, disturbed=True)]
    (point,) = Book(CONDITION, good + bad).curve(Arm.BASELINE)
    assert (point.repeats, point.tok_s) == (2, pytest.approx(100.0))


def test_a_curve_has_intervals_in_tok_s_and_rises_in_concurrency() -> None:
    cells = repeats(Arm.BASELINE, 90.0, 100.0, 110.0, concurrency=8) + repeats(Arm.BASELINE, 50.0)
    low, high = Book(CONDITION, cells).curve(Arm.BASELINE)
    assert (low.concurrency, high.concurrency) == (4, 8)
    assert (low.low, low.high) == (None, None)
    assert high.low is not None
    assert high.high is not None
    assert high.low < high.tok_s < high.high


def test_a_concurrency_is_queued_where_most_repeats_were() -> None:
    cells = repeats(Arm.SPECULATIVE, 100.0, 100.0, 100.0)
    one_in_three = [replace(cells[0], queued=True), *cells[1:]]
    two_in_three = [replace(cells[0], queued=True), replace(cells[1], queued=True), cells[2]]
    assert not Book(CONDITION, one_in_three).curve(Arm.SPECULATIVE)[0].queued
    assert Book(CONDITION, two_in_three).curve(Arm.SPECULATIVE)[0].queued


def test_quick_runs_get_an_assumed_interval_that_narrows_with_repeats() -> None:
    both = repeats(Arm.BASELINE, 100.0, 100.0) + repeats(Arm.SPECULATIVE, 110.0, 110.0)
    once = [one for one in both if one.cell.repeat == 0]
    (wide,) = Book(CONDITION, once).contrasts(Arm.SPECULATIVE, Arm.BASELINE, quick=True)
    (narrow,) = Book(CONDITION, both).contrasts(Arm.SPECULATIVE, Arm.BASELINE, quick=True)
    assert wide.high - wide.low == pytest.approx(0.16)
    assert narrow.high - narrow.low < wide.high - wide.low


def test_an_arms_decoding_is_not_compared_with_what_clients_got_of_the_other() -> None:
    ours = [replace(one, gross_tok_s=80.0) for one in repeats(Arm.SPECULATIVE, 100.0, 100.0, 100.0)]
    theirs = [replace(one, decode_tok_s=None) for one in repeats(Arm.BASELINE, 90.0, 90.0, 90.0)]
    book = Book(CONDITION, [*ours, *theirs])
    (contrast,) = book.contrasts(Arm.SPECULATIVE, Arm.BASELINE)
    assert contrast.log_ratio == pytest.approx(math.log(80.0 / 90.0))
    (point,) = book.curve(Arm.SPECULATIVE)
    assert point.tok_s == pytest.approx(80.0)


def test_a_lone_cell_that_does_not_tell_its_decoding_is_left_out() -> None:
    ours = repeats(Arm.SPECULATIVE, 100.0, 100.0, 100.0)
    theirs = repeats(Arm.BASELINE, 90.0, 90.0, 90.0)
    book = Book(CONDITION, [replace(ours[0], gross_tok_s=70.0, decode_tok_s=None), *ours[1:], *theirs])
    (contrast,) = book.contrasts(Arm.SPECULATIVE, Arm.BASELINE)
    assert (contrast.log_ratio, contrast.repeats) == (pytest.approx(math.log(100.0 / 90.0)), 2)

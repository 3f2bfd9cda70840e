from itertools import pairwise

import pytest
from fakes.calibrated import Table, context, of_curve
from hypothesis import given
from hypothesis import strategies as st

from proxy.lab.calibration.advice.choices import (
    Choice,
    Speeds,
    Way,
    at,
    best_overflow,
    best_single,
    gains,
    speeds_of,
    threshold_at,
    totals_of,
)
from proxy.lab.calibration.values import Arm
from proxy.model import Placement

SEPARATE, SHARED = Placement.SEPARATE, Placement.SHARED

# Speculation doubles the speed of one request and reaches its end at 40 tok/s; the baseline goes on.
FAST = {1: 20.0, 2: 30.0, 4: 38.0, 8: 40.0, 16: 40.0}
WIDE = {1: 10.0, 2: 19.0, 4: 36.0, 8: 66.0, 16: 110.0}
CROSSING = context(FAST, WIDE)

tables = st.lists(st.floats(1.0, 500.0), min_size=2, max_size=6).map(
    lambda speeds: {2**index: speed for index, speed in enumerate(speeds)}
)


def rows(way: Way, found: tuple[Choice, ...]) -> dict[int, Choice]:
    return {row.total: row for row in found if row.way is way}


def speeds(placement: Placement = SEPARATE) -> Speeds:
    return speeds_of(CROSSING, placement)


def test_each_way_has_a_row_at_each_total() -> None:
    found = at(CROSSING, (1, 8, 32), SEPARATE)
    ways = {Way.ONLY_SPECULATIVE, Way.ONLY_BASELINE, Way.THRESHOLD, Way.OVERFLOW, Way.MARGINAL, Way.CONSOLIDATE}
    assert {(row.way, row.total) for row in found} == {(way, total) for way in ways for total in (1, 8, 32)}


def test_speeds_of_both_add_up_on_gpus_of_their_own() -> None:
    (row,) = rows(Way.OVERFLOW, at(CROSSING, (10,), SEPARATE, overflow_at=2)).values()
    assert (row.speculative, row.baseline) == (2, 8)
    assert row.tok_s == pytest.approx(30.0 + 66.0)


def test_both_at_once_have_half_of_their_speed_on_shared_gpus() -> None:
    (row,) = rows(Way.OVERFLOW, at(CROSSING, (10,), SHARED, overflow_at=2)).values()
    assert row.tok_s == pytest.approx((30.0 + 66.0) / 2)


def test_one_backend_alone_keeps_its_speed_on_shared_gpus() -> None:
    (row,) = rows(Way.ONLY_SPECULATIVE, at(CROSSING, (4,), SHARED)).values()
    assert row.tok_s == pytest.approx(38.0)


def test_all_requests_alike_each_get_their_share_of_the_whole() -> None:
    (row,) = rows(Way.ONLY_BASELINE, at(CROSSING, (8,), SEPARATE)).values()
    assert row.request_tok_s == pytest.approx(66.0 / 8)


def test_the_threshold_moves_all_at_once() -> None:
    found = rows(Way.THRESHOLD, at(CROSSING, (4, 5, 6), SEPARATE, leave_at=5))
    assert [(row.speculative, row.baseline) for row in found.values()] == [(4, 0), (0, 5), (0, 6)]


def test_a_request_alone_goes_where_it_is_faster_by_the_marginal_rule() -> None:
    found = rows(Way.MARGINAL, at(CROSSING, (1,), SEPARATE))
    assert (found[1].speculative, found[1].baseline) == (1, 0)


def test_the_marginal_rule_fills_a_slower_backend_too_where_it_delays_less() -> None:
    never = of_curve("seed")
    found = rows(Way.MARGINAL, at(never, totals_of(never, SEPARATE), SEPARATE))
    assert found[1].speculative == 0
    assert found[16].speculative == 7  # about N* = 11 when 16 are on the baseline, 4 when 4 are


def test_consolidating_uses_the_better_backend_alone() -> None:
    found = rows(Way.CONSOLIDATE, at(CROSSING, (1, 16), SHARED))
    assert (found[1].speculative, found[16].baseline) == (1, 16)


def test_the_adaptive_arm_has_a_row_where_it_was_measured() -> None:
    three = context(FAST, WIDE, {1: 19.0, 16: 100.0})
    assert rows(Way.ADAPTIVE, at(three, (16,), SEPARATE))[16].tok_s == pytest.approx(100.0)


def test_one_arm_gives_its_own_rows_alone() -> None:
    assert {row.way for row in at(context({}, WIDE), (1, 16), SEPARATE)} == {Way.ONLY_BASELINE}


def test_a_count_beyond_what_was_measured_is_marked() -> None:
    found = rows(Way.ONLY_BASELINE, at(CROSSING, (16, 32), SEPARATE))
    assert [row.extrapolated for row in found.values()] == [False, True]


def test_totals_go_on_to_both_at_their_most_on_gpus_of_their_own() -> None:
    assert totals_of(CROSSING, SEPARATE) == (1, 2, 4, 8, 16, 32)
    assert totals_of(CROSSING, SHARED) == (1, 2, 4, 8, 16)


def test_the_best_overflow_limit_follows_the_load() -> None:
    never = speeds_of(of_curve("seed"), SEPARATE)
    limits = [best_overflow(never, totals_of(of_curve("seed"), SEPARATE), {total: 1.0}) for total in (4, 32, 192)]
    assert limits == sorted(set(limits))


def test_the_best_overflow_limit_is_no_worse_than_any_other() -> None:
    totals = totals_of(CROSSING, SEPARATE)
    best = best_overflow(speeds(), totals)
    for other in range(1, 33):
        found = at(CROSSING, totals, SEPARATE, overflow_at=best), at(CROSSING, totals, SEPARATE, overflow_at=other)
        product = [1.0, 1.0]
        for index, choices in enumerate(found):
            for row in rows(Way.OVERFLOW, choices).values():
                product[index] *= row.pace_s
        assert product[0] <= product[1] * (1 + 1e-4)


def test_gains_say_where_they_are_greatest() -> None:
    found = gains(at(CROSSING, (1, 2, 16), SHARED), Way.CONSOLIDATE, Way.ONLY_BASELINE)
    assert found is not None
    assert (found.most, found.most_at) == (pytest.approx(1.0), 1)


def test_gains_are_unknown_between_ways_that_share_no_total() -> None:
    assert gains(at(context({}, WIDE), (1,), SEPARATE), Way.OVERFLOW, Way.ONLY_BASELINE) is None


def test_the_better_single_backend_is_the_one_faster_over_all_loads() -> None:
    assert best_single(at(CROSSING, (1, 2), SEPARATE)) is Way.ONLY_SPECULATIVE
    assert best_single(at(CROSSING, (8, 16), SEPARATE)) is Way.ONLY_BASELINE


def test_the_threshold_is_the_upper_end_of_the_band() -> None:
    assert threshold_at(CROSSING) == 5
    assert threshold_at(of_curve("seed")) is None


@given(tables, tables, st.sampled_from(Placement))
def test_every_way_places_every_request_once(speculative: Table, baseline: Table, placement) -> None:
    found = context(speculative, baseline)
    for row in at(found, totals_of(found, placement), placement):
        assert row.speculative + row.baseline == row.total
        assert row.tok_s > 0
        assert row.request_tok_s == pytest.approx(1 / row.pace_s)


@given(tables, tables)
def test_the_marginal_rule_never_takes_a_place_back(speculative: Table, baseline: Table) -> None:
    filled = speeds_of(context(speculative, baseline), SEPARATE).marginal(40)
    assert all(after - before in (0, 1) for before, after in pairwise(filled))


@given(tables, tables)
def test_the_better_backend_alone_is_never_slower_than_a_threshold(speculative: Table, baseline: Table) -> None:
    found = context(speculative, baseline)
    rows_ = at(found, totals_of(found, SHARED), SHARED, leave_at=4)
    better, moved = rows(Way.CONSOLIDATE, rows_), rows(Way.THRESHOLD, rows_)
    assert all(better[total].pace_s <= row.pace_s for total, row in moved.items())


def test_speed_of_nobody_is_nought() -> None:
    assert speeds().tok_s(Arm.BASELINE, 0) == 0.0

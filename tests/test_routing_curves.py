"""Measured speeds: exact at their points, straight between, steps that never fall, and odd ones refused."""

from itertools import pairwise
from math import inf, isfinite, nan, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.lab.step_time import Point, TableTime
from proxy.model import Placement, Role
from proxy.routing.curves import LEAST, ContextCurves, Curves, SpeedCurve, SpeedPoint
from proxy.routing.verdict import Verdict, VerdictKind

SAID = Verdict(VerdictKind.UNKNOWN)
POINTS = st.dictionaries(st.floats(0.5, 1000), st.floats(0.01, 1e6), min_size=1, max_size=12)
IN_FLIGHT = st.floats(0, 1e5, exclude_min=True)


def curve(points: dict[float, float]) -> SpeedCurve:
    return SpeedCurve(tuple(SpeedPoint(*point) for point in sorted(points.items())))


def bucket(context_tokens: int) -> ContextCurves:
    return ContextCurves(context_tokens, None, curve({1: 50}), SAID)


def calibration(*context_tokens: int) -> Curves:
    return Curves(tuple(map(bucket, context_tokens)), "2026-11-30T04:12:00Z", Placement.SEPARATE)


@given(POINTS, st.lists(IN_FLIGHT, min_size=2))
def test_the_time_of_a_step_never_falls_as_more_run(points: dict[float, float], counts: list[float]) -> None:
    measured = curve(points)
    for fewer, more in pairwise(sorted([*counts, *points])):
        assert measured.seconds_per_token(more) >= measured.seconds_per_token(fewer) * (1 - 1e-9)


@given(POINTS, IN_FLIGHT)
def test_speeds_are_finite_and_above_zero_everywhere(points: dict[float, float], n: float) -> None:
    measured = curve(points)
    assert isfinite(measured.tok_s(n))
    assert measured.tok_s(n) > 0
    assert 0 < measured.seconds_per_token(n) < inf


@given(POINTS)
def test_points_are_met_exactly_unless_a_step_would_be_shorter_with_more(points: dict[float, float]) -> None:
    measured = curve(points)
    slowest_s = 0.0
    for in_flight, tok_s in sorted(points.items()):
        if in_flight / tok_s >= slowest_s:
            assert measured.tok_s(in_flight) == tok_s
        else:
            assert measured.tok_s(in_flight) == pytest.approx(in_flight / slowest_s)
        slowest_s = max(slowest_s, in_flight / tok_s)


@given(POINTS, IN_FLIGHT)
def test_an_embedded_engine_of_the_same_points_takes_the_same_steps(points: dict[float, float], n: float) -> None:
    table = TableTime(
        tuple(Point(*point, 1.0) for point in sorted(points.items())), Role.SPECULATIVE, tokens_per_step=1.0
    )
    assert curve(points).seconds_per_token(n) == pytest.approx(table._ms(max(n, LEAST)) / 1000, rel=1e-6)


@given(st.floats(1, 100), st.floats(1.01, 10), st.floats(1, 1e4), st.floats(0.1, 1))
def test_between_two_points_it_is_straight_in_log_log(at: float, further: float, tok_s: float, gain: float) -> None:
    other = tok_s * further**gain
    measured = curve({at: tok_s, at * further: other})
    assert measured.tok_s(at * sqrt(further)) == pytest.approx(sqrt(tok_s * other))


def test_a_cliff_in_throughput_is_kept() -> None:
    measured = curve({4: 500, 8: 350, 16: 600})
    assert [measured.tok_s(n) for n in (4, 8, 16)] == [500, 350, 600]


def test_a_step_that_would_be_shorter_with_more_is_held_up() -> None:
    measured = curve({4: 100, 8: 400})
    assert measured.seconds_per_token(8) == pytest.approx(measured.seconds_per_token(4))
    assert measured.tok_s(8) == pytest.approx(200)


def test_beyond_the_ends_the_step_time_goes_on_as_a_straight_line() -> None:
    measured = curve({2: 100, 4: 160})  # steps of 20 and 25 ms
    assert measured.seconds_per_token(8) == pytest.approx(0.035)
    assert measured.seconds_per_token(1) == pytest.approx(0.0175)
    assert measured.tok_s(0.001) <= 100


def test_few_in_flight_never_get_more_than_the_first_point() -> None:
    steep = curve({10: 100, 20: 50})  # its line reaches zero at 6.7
    assert [steep.tok_s(n) for n in (1, 5, 10)] == pytest.approx([100, 100, 100])


def test_one_point_alone_is_flat() -> None:
    assert [curve({8: 300}).tok_s(n) for n in (0.5, 8, 400)] == [300, 300, 300]


@pytest.mark.parametrize(("n", "outside"), [(1.9, True), (2, False), (3, False), (16, False), (17, True)])
def test_it_is_known_what_lies_outside_the_points(n: float, outside: bool) -> None:
    assert curve({2: 100, 16: 300}).extrapolated(n) is outside


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ([], "needs at least one point"),
        ([(nan, 1)], "in_flight must be above zero"),
        ([(inf, 1)], "in_flight must be above zero"),
        ([(0, 1)], "in_flight must be above zero"),
        ([(-1, 1)], "in_flight must be above zero"),
        ([(1, nan)], "tok_s must be above zero"),
        ([(1, inf)], "tok_s must be above zero"),
        ([(1, 0)], "tok_s must be above zero"),
        ([(1, -5)], "tok_s must be above zero"),
        ([(1, 5e-324)], "tok_s must be above zero"),
        ([(2, 10), (1, 20)], "in_flight must rise, and 1 follows 2"),
        ([(1, 10), (1, 20)], "in_flight must rise, and 1 follows 1"),
    ],
)
def test_points_that_are_no_curve_are_refused(points: list[tuple[float, float]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SpeedCurve(tuple(SpeedPoint(*point) for point in points))


def test_neighbouring_floats_are_points_like_any_others() -> None:
    last = 2.0 - 2.0**-52
    measured = curve({last: 10, 2.0: 11})
    assert [measured.tok_s(n) for n in (last, 2.0)] == pytest.approx([10, 10])


# ---------------------------------------------------------------- buckets of context


@pytest.mark.parametrize(
    ("tokens", "nearest"), [(0, 1024), (1024, 1024), (2800, 1024), (2900, 8192), (16384, 8192), (16385, 32768)]
)
def test_the_nearest_bucket_is_the_one_with_the_smallest_ratio(tokens: float, nearest: int) -> None:
    assert calibration(1024, 8192, 32768).at_context(tokens).context_tokens == nearest


@pytest.mark.parametrize(
    ("buckets", "message"),
    [
        ((), "at least one bucket"),
        ((-1,), "at least one bucket"),
        ((8, 8), "context_tokens must rise, and 8 follows 8"),
        ((8, 4), "context_tokens must rise, and 4 follows 8"),
    ],
)
def test_buckets_that_do_not_rise_are_refused(buckets: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        calibration(*buckets)


def test_a_bucket_has_the_curve_of_each_role() -> None:
    measured = bucket(1024)
    assert (measured.of(Role.SPECULATIVE), measured.of(Role.BASELINE)) == (None, measured.baseline)

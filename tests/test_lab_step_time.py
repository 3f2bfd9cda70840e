import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.lab.step_time import FittedTime, ModelM, Point, TableTime
from proxy.model import Role

POINTS = (Point(1, 80.0, 50.0), Point(4, 200.0, 160.0), Point(16, 240.0, 320.0))
MODEL = ModelM(t0=8.0, m=20.0, ne=10.0, c=0.2, d0=2.0, d1=0.02, tau=2.2, verify_tokens=4, k=2e-5, a=3.0)


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("point", POINTS)
def test_table_gives_the_measured_throughput_at_its_points(role: Role, point: Point) -> None:
    time = TableTime(POINTS, role, tokens_per_step=2.0)
    batch = int(point.concurrency)
    assert 1000.0 * 2.0 * batch / time.step_ms(batch, 0.0) == pytest.approx(point.of(role))


def test_table_is_straight_in_log_log_between_points() -> None:
    time = TableTime(POINTS, Role.BASELINE, tokens_per_step=1.0)
    assert 1000.0 * 2 / time.step_ms(2, 0.0) == pytest.approx(math.sqrt(50.0 * 160.0))


def test_table_goes_on_linearly_in_step_time_beyond_the_last_point() -> None:
    time = TableTime(POINTS, Role.BASELINE, tokens_per_step=1.0)
    slope = time.step_ms(33, 0.0) - time.step_ms(32, 0.0)
    assert slope == pytest.approx((time.step_ms(16, 0.0) - time.step_ms(4, 0.0)) / 12)


def test_table_with_one_point_keeps_throughput_flat() -> None:
    time = TableTime((Point(4, 200.0, 100.0),), Role.BASELINE, tokens_per_step=1.0)
    assert [1000.0 * n / time.step_ms(n, 0.0) for n in (1, 4, 40)] == pytest.approx([100.0] * 3)


@given(
    st.lists(
        st.tuples(st.integers(1, 500), st.floats(1.0, 1e4), st.floats(1.0, 1e4)),
        min_size=1,
        max_size=9,
        unique_by=lambda row: row[0],
    ),
    st.sampled_from(list(Role)),
)
def test_table_never_makes_a_bigger_batch_faster(rows: list[tuple[int, float, float]], role: Role) -> None:
    points = tuple(Point(float(n), s, b) for n, s, b in sorted(rows))
    time = TableTime(points, role, tokens_per_step=2.2)
    times = [time.step_ms(batch, 0.0) for batch in (1, 2, 3, 5, 9, 17, 48, 100, 400, 900)]
    assert min(times) > 0.0
    assert all(late >= early * (1 - 1e-9) for early, late in pairwise(times))


def test_formula_counts_the_verified_tokens_of_a_speculative_step() -> None:
    target = MODEL.step_ms(Role.BASELINE, 8.0)
    drafted = MODEL.step_ms(Role.SPECULATIVE, 2.0)
    assert drafted == pytest.approx(target + MODEL.d0 + MODEL.d1 * 2)


def test_formula_scales_attention_only_when_verifying() -> None:
    added = [MODEL.step_ms(role, 4, 10_000) - MODEL.step_ms(role, 4, 0) for role in (Role.SPECULATIVE, Role.BASELINE)]
    assert added[0] == pytest.approx(MODEL.a * added[1])


def test_fitted_time_adds_the_context_of_the_curve() -> None:
    assert FittedTime(MODEL, Role.BASELINE, 20_000).step_ms(4, 500) == MODEL.step_ms(Role.BASELINE, 4, 20_500)

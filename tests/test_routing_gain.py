"""What speculation gives at best, from two curves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.routing.curves import ContextCurves, SpeedCurve, SpeedPoint
from proxy.routing.gain import best_gain
from proxy.routing.verdict import judge


def curve(**speeds: float) -> SpeedCurve:
    return SpeedCurve(tuple(SpeedPoint(float(name[1:]), tok_s) for name, tok_s in speeds.items()))


def context(speculative: SpeedCurve | None, baseline: SpeedCurve | None) -> ContextCurves:
    return ContextCurves(1024, speculative, baseline, judge(()))


def test_it_is_the_quotient_where_speculation_is_fastest_by_comparison() -> None:
    ours, theirs = curve(n1=150, n8=600, n64=1200), curve(n1=100, n8=500, n64=2400)
    assert best_gain(context(ours, theirs)) == pytest.approx(1.5)


def test_it_is_below_one_where_speculation_never_pays() -> None:
    assert best_gain(context(curve(n1=90, n8=400), curve(n1=100, n8=500))) == pytest.approx(0.9)


def test_only_what_both_were_measured_at_counts() -> None:
    ours, theirs = curve(n4=300, n8=600), curve(n1=100, n8=400, n64=400)
    assert best_gain(context(ours, theirs)) == pytest.approx(1.5)


def test_a_backend_that_was_not_measured_tells_nothing() -> None:
    assert best_gain(context(None, curve(n1=100))) is None
    assert best_gain(context(curve(n1=100), curve(n2=150))) is None


@given(st.lists(st.floats(0.2, 5.0), min_size=3, max_size=3))
def test_no_load_between_the_points_gives_more(factors: list[float]) -> None:
    theirs = curve(n1=100, n8=500, n64=1500)
    ours = SpeedCurve(tuple(SpeedPoint(p.in_flight, p.tok_s * f) for p, f in zip(theirs.points, factors, strict=True)))
    best = best_gain(context(ours, theirs))
    assert best is not None
    assert all(ours.tok_s(n) / theirs.tok_s(n) <= best * 1.000001 for n in range(1, 65))

"""Tables of delays: what is looked up is what the curve says, and the bucket is the one that the curves name."""

from fakes.speeds import TABLES, bucket, curves, of_both, speed_curve
from hypothesis import given
from hypothesis import strategies as st

from proxy.routing import delays
from proxy.routing.curves import Curves, SpeedCurve
from proxy.routing.delays import MAX_LISTED, Delays, tables

IN_FLIGHT = st.integers(0, 40) | st.integers(MAX_LISTED - 3, MAX_LISTED + 3) | st.integers(0, 10**7)


def summed(curve: SpeedCurve, n: int) -> float:
    """n d(n), as it is written in the paper."""
    return n * (n / curve.tok_s(n)) if n else 0.0


@given(TABLES, IN_FLIGHT, st.integers(1, 64) | st.just(10**6))
def test_a_look_into_the_table_is_the_formula_within_it_and_beyond(
    table: dict[float, float], n: int, weight: int
) -> None:
    curve = speed_curve(table)
    listed = Delays(curve)
    assert listed.total(n) == summed(curve, n)
    assert listed.added(n, weight) == summed(curve, n + weight) - summed(curve, n)


@given(st.lists(st.integers(0, 200_000), min_size=1, max_size=5, unique=True).map(sorted), st.integers(0, 400_000))
def test_the_bucket_is_the_one_that_the_curves_name(lengths: list[int], tokens: int) -> None:
    known = curves(*(bucket({1: 10.0 + length}, {1: 5.0}, length) for length in lengths))
    found = tables(known)
    assert found is not None
    nearest = known.at_context(tokens)
    assert found.at_context(tokens).speculative.curve == nearest.speculative
    assert found.at_context(tokens).baseline.curve == nearest.baseline


def test_curves_with_a_gap_give_no_tables() -> None:
    whole, half = bucket({1: 50.0}, {1: 40.0}), bucket({1: 50.0}, None, 9000)
    assert tables(curves(whole)) is not None
    assert tables(curves(whole, half)) is None
    assert tables(None) is None


def test_the_same_curves_are_listed_once() -> None:
    def listed(known: Curves) -> Delays:
        found = tables(known)
        assert found is not None
        return found.at_context(0).baseline

    delays._delays.cache_clear()
    first = listed(of_both({1: 50.0}, {1: 40.0}))
    assert listed(of_both({1: 51.0}, {1: 40.0})) is first
    assert listed(of_both({1: 51.0}, {1: 41.0})) is not first

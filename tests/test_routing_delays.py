"""Tables of delays: what is looked up is what the curve says."""

from fakes.speeds import TABLES, speed_curve
from hypothesis import given
from hypothesis import strategies as st

from proxy.routing.curves import SpeedCurve
from proxy.routing.delays import MAX_LISTED, Delays, delays

IN_FLIGHT = st.integers(0, 40) | st.integers(MAX_LISTED - 3, MAX_LISTED + 3) | st.integers(0, 10**7)


def summed(curve: SpeedCurve, n: int) -> float:
    """n d(n), as it is written in the paper."""
    return n * (n / curve.tok_s(n)) if n else 0.0


@given(TABLES, IN_FLIGHT)
def test_a_look_into_the_table_is_the_formula_within_it_and_beyond(table: dict[float, float], n: int) -> None:
    curve = speed_curve(table)
    assert Delays(curve).total(n) == summed(curve, n)


def test_the_same_curve_is_listed_once() -> None:
    delays.cache_clear()
    first = delays(speed_curve({1: 40.0}))
    assert delays(speed_curve({1: 40.0})) is first
    assert delays(speed_curve({1: 41.0})) is not first

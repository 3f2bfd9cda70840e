"""The pace under a demand: the fewest sequences in flight that make as much, and overload where nothing does."""

from itertools import pairwise

import pytest
from fakes.speeds import TABLES, speed_curve
from hypothesis import given
from hypothesis import strategies as st

from proxy.routing.delays import MAX_LISTED
from proxy.routing.paces import OVERLOADED_S, Paces, paces

DEMANDS = st.floats(0.0, 6000.0)


@given(TABLES, DEMANDS)
def test_the_pace_is_that_of_the_fewest_in_flight_that_make_as_much(table: dict[float, float], demand: float) -> None:
    curve = speed_curve(table)
    last = max(1, int(max(table)))
    assert last < MAX_LISTED
    enough = next((n for n in range(1, last + 1) if curve.tok_s(n) >= demand), None)
    found = Paces(curve).at_demand(demand)
    if enough is None:
        peak = max(curve.tok_s(n) for n in range(1, last + 1))
        assert found == OVERLOADED_S * demand / peak
    elif enough == 1:
        assert found == curve.seconds_per_token(1)
    else:
        n = found * demand
        assert enough - 1 <= n <= enough + 1e-9
        share = n - (enough - 1)
        made = curve.tok_s(enough - 1) * (1 - share) + curve.tok_s(enough) * share
        assert made == pytest.approx(demand)


@given(TABLES, st.lists(DEMANDS, min_size=2, max_size=20))
def test_more_demand_never_makes_a_faster_pace(table: dict[float, float], demands: list[float]) -> None:
    found = [Paces(speed_curve(table)).at_demand(demand) for demand in sorted(demands)]
    assert all(one <= other * (1 + 1e-9) for one, other in pairwise(found))


def test_what_lies_beyond_the_measured_counts_is_never_counted_on() -> None:
    measured = Paces(speed_curve({1: 50.0, 8: 300.0}))
    assert measured.at_demand(300.0) == 8 / 300
    assert measured.at_demand(300.1) >= OVERLOADED_S


def test_of_two_that_are_overloaded_the_one_that_gives_more_is_better_by_as_much() -> None:
    weak, strong = Paces(speed_curve({1: 50.0, 8: 300.0})), Paces(speed_curve({1: 60.0, 8: 450.0}))
    assert weak.at_demand(500.0) / strong.at_demand(500.0) == pytest.approx(1.5)


def test_the_same_curve_is_listed_once() -> None:
    paces.cache_clear()
    first = paces(speed_curve({1: 40.0}))
    assert paces(speed_curve({1: 40.0})) is first
    assert paces(speed_curve({1: 41.0})) is not first

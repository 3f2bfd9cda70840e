"""The pace under a demand that comes at random: the mean number in flight, and overload where nothing gives as much."""

from itertools import pairwise
from math import exp, log, sqrt

import pytest
from fakes.speeds import TABLES, speed_curve
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.routing.paces import OVERLOADED_S, Paces, paces

DEMANDS = st.floats(0.0, 6000.0)


def number_held(measured: Paces, last: int, tok_s: float) -> tuple[float, float]:
    """Mean and deviation by the chances of 0, 1, 2, ... in flight, each added up until it hardly counts."""
    logs, n = [0.0], 0
    while n < last or logs[-1] > max(logs) - 40.0:
        n += 1
        logs.append(logs[-1] + log(tok_s / (measured.curve.tok_s(n) if n <= last else measured.most_tok_s)))
    chances = [exp(each - max(logs)) for each in logs]
    mean = sum(n * chance for n, chance in enumerate(chances)) / sum(chances)
    return mean, sqrt(sum((n - mean) ** 2 * chance for n, chance in enumerate(chances)) / sum(chances))


@given(TABLES, st.integers(1, 55))
def test_so_many_are_in_flight_as_requests_hold_that_come_at_random(table: dict[float, float], place: int) -> None:
    measured = Paces(speed_curve(table))
    tok_s = measured.tok_s[place]
    expected, spread = number_held(measured, max(1, int(max(table))), tok_s)
    assert measured.held[place] == pytest.approx(expected, rel=1e-6)
    assert measured.spread[place] == pytest.approx(spread, rel=1e-5)
    assert measured.at_demand(tok_s) == pytest.approx(expected / tok_s, rel=1e-6)


def test_one_that_serves_all_at_the_same_speed_holds_as_many_as_a_plain_queue() -> None:
    measured = Paces(speed_curve({1: 100.0, 64: 100.0}))
    for share in (0.1, 0.5, 0.9, 0.99, 0.9999):
        assert measured.at_demand(100.0 * share) == pytest.approx(0.01 / (1.0 - share), rel=0.04)


@given(TABLES, st.floats(0.001, 10_000.0))
def test_the_demand_of_a_number_in_flight_is_the_one_that_holds_it(table: dict[float, float], held: float) -> None:
    measured = Paces(speed_curve(table))
    tok_s = measured.demand_of(held)
    assert 0.0 < tok_s < measured.most_tok_s
    assert measured.at_demand(tok_s) * tok_s == pytest.approx(held, rel=1e-3)


@given(TABLES, st.integers(1, 60), st.floats(0.1, 4.0))
def test_a_crowd_is_explained_by_the_least_demand_at_which_it_is_no_rarer(
    table: dict[float, float], place: int, spreads: float
) -> None:
    measured = Paces(speed_curve(table))
    crowd = measured.held[place] + spreads * measured.spread[place]
    told = measured.demand_of(crowd, spreads)
    assert told <= measured.tok_s[place] * (1.0 + 1e-9)
    before = [at for at, tok_s in enumerate(measured.tok_s) if tok_s < told * (1.0 - 1e-9)]
    assert all(measured.held[at] + spreads * measured.spread[at] <= crowd * (1.0 + 1e-9) for at in before)


def test_a_number_swings_as_by_chance_alone_where_each_is_served_at_the_same_pace_and_by_itself_near_the_most() -> None:
    each = Paces(speed_curve({1: 10.0, 512: 5120.0}))
    for place in (8, 16, 24):
        assert each.spread[place] == pytest.approx(sqrt(each.held[place]), rel=0.01)
    queue = Paces(speed_curve({1: 100.0, 64: 100.0}))
    assert queue.spread[60] == pytest.approx(queue.held[60], rel=0.01)


def test_nothing_in_flight_is_no_demand() -> None:
    assert Paces(speed_curve({1: 50.0, 8: 300.0})).demand_of(0.0) == 0.0
    assert Paces(speed_curve({1: 50.0, 8: 300.0})).at_demand(0.0) == 1 / 50


@example(table={1.0: 50.0}, demands=[0.0, 5e-324])
@given(TABLES, st.lists(DEMANDS, min_size=2, max_size=20))
def test_more_demand_never_makes_a_faster_pace(table: dict[float, float], demands: list[float]) -> None:
    found = [Paces(speed_curve(table)).at_demand(demand) for demand in sorted(demands)]
    assert all(one <= other * (1 + 1e-9) for one, other in pairwise(found))


def test_what_lies_beyond_the_measured_counts_is_never_counted_on() -> None:
    measured = Paces(speed_curve({1: 50.0, 8: 300.0}))
    assert measured.at_demand(299.9) < OVERLOADED_S
    assert measured.at_demand(300.0) >= OVERLOADED_S


def test_of_two_that_are_overloaded_the_one_that_gives_more_is_better_by_as_much() -> None:
    weak, strong = Paces(speed_curve({1: 50.0, 8: 300.0})), Paces(speed_curve({1: 60.0, 8: 450.0}))
    assert weak.at_demand(500.0) / strong.at_demand(500.0) == pytest.approx(1.5)


def test_the_same_curve_is_listed_once() -> None:
    paces.cache_clear()
    first = paces(speed_curve({1: 40.0}))
    assert paces(speed_curve({1: 40.0})) is first
    assert paces(speed_curve({1: 41.0})) is not first


def test_a_speed_that_is_lost_where_more_are_in_flight_is_not_counted_on() -> None:
    measured = Paces(speed_curve({1: 50.0, 8: 300.0, 16: 200.0}))
    assert measured.at_demand(199.0) < OVERLOADED_S
    assert measured.at_demand(201.0) >= OVERLOADED_S

"""The pace under a demand that comes at random: the mean number in flight, and overload where nothing gives as much."""

from bisect import bisect_left
from itertools import pairwise
from math import exp, inf, log, sqrt

import pytest
from fakes.speeds import TABLES, speed_curve
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.routing.paces import OVERLOADED_S, RARELY, Paces, paces

DEMANDS = st.floats(0.0, 6000.0)


def chances_held(measured: Paces, last: int, tok_s: float) -> list[float]:
    """The chances of 0, 1, 2, ... in flight, each until it hardly counts."""
    logs, n = [0.0], 0
    while n < last or logs[-1] > max(logs) - 40.0:
        n += 1
        logs.append(logs[-1] + log(tok_s / (measured.curve.tok_s(n) if n <= last else measured.most_tok_s)))
    chances = [exp(each - max(logs)) for each in logs]
    return [chance / sum(chances) for chance in chances]


@given(TABLES, st.integers(1, 55))
def test_so_many_are_in_flight_as_requests_hold_that_come_at_random(table: dict[float, float], place: int) -> None:
    measured = Paces(speed_curve(table))
    tok_s = measured.tok_s[place]
    chances = chances_held(measured, max(1, int(max(table))), tok_s)
    expected = sum(n * chance for n, chance in enumerate(chances))
    assert measured.held[place] == pytest.approx(expected, rel=1e-6)
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


@given(TABLES, st.integers(1, 55))
def test_more_are_in_flight_than_the_crowd_once_in_so_many_moments(table: dict[float, float], place: int) -> None:
    measured = Paces(speed_curve(table))
    chances = chances_held(measured, max(1, int(max(table))), measured.tok_s[place])
    crowd = measured.crowd(place)
    assert sum(chances[int(crowd) + 2 :]) <= 1.0001 / RARELY
    assert sum(chances[max(0, int(crowd)) :]) >= 0.9999 / RARELY


def test_the_less_one_more_gains_the_further_the_number_swings() -> None:
    each = Paces(speed_curve({1: 10.0, 512: 5120.0}))
    place = bisect_left(each.held, 100.0)
    assert each.crowd(place) == pytest.approx(each.held[place] + 3.5 * sqrt(each.held[place]), rel=0.02)
    queue = Paces(speed_curve({1: 100.0, 64: 100.0}))
    assert queue.at_most(90.0, 1.0) == pytest.approx(log(1.0 / RARELY) / log(0.9), rel=0.1)
    assert queue.at_most(99.99, 1.0) == pytest.approx(log(1.0 / RARELY) / log(0.9999), rel=0.1)
    assert queue.at_most(100.0, 1.0) == inf


@given(TABLES, st.lists(DEMANDS, min_size=2, max_size=10), st.floats(1.0, 5.0))
def test_chance_makes_as_many_of_more_demand_and_of_bursts(
    table: dict[float, float], demands: list[float], swings: float
) -> None:
    measured = Paces(speed_curve(table))
    found = [measured.at_most(demand, 1.0) for demand in sorted(demands)]
    assert all(one <= other + 1e-9 for one, other in pairwise(found))
    assert all(many <= measured.at_most(demand, swings) for demand, many in zip(sorted(demands), found, strict=True))


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

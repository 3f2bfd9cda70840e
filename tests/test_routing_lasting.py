"""The demand that lasts: steady load is known the better the longer it lasts, and load that changes begins it anew."""

from math import exp

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.model import Demand
from proxy.routing.demand import DEMAND_S
from proxy.routing.lasting import LONGEST_S, POISSON_SPREAD, lasting


def steady(tok_s: float = 40.0, lasted_s: float = 100.0, mean: float = 40.0, spread: float = 0.0) -> Demand:
    return Demand(tok_s, answer_tokens=256.0, lasting_tok_s=mean, lasted_s=lasted_s, spread=spread)


def test_the_mean_of_the_first_look_is_the_demand_and_later_it_moves_the_less_the_longer_it_has_lasted() -> None:
    assert lasting(steady(lasted_s=0.0, mean=0.0), 1.0).lasting_tok_s == 40.0
    for lasted_s, since_s in ((5.0, DEMAND_S), (100.0, 100.0), (LONGEST_S, LONGEST_S)):
        after = lasting(steady(lasted_s=lasted_s), 1.0)
        assert after.lasting_tok_s == pytest.approx(40.0 * exp(-1.0 / since_s)), "what comes is added as it comes"
        assert after.lasted_s == min(lasted_s + 1.0, LONGEST_S)


@pytest.mark.parametrize(
    ("tok_s", "spread", "begins_anew"),
    [(60.0, 0.0, False), (400.0, 0.0, True), (400.0, 2.0, False), (0.1, 0.0, False)],
    ids=["chance", "a leap", "bursts as before", "a pause"],
)
def test_it_begins_anew_where_the_last_seconds_are_further_from_it_than_by_chance_or_as_they_were_before(
    tok_s: float, spread: float, begins_anew: bool
) -> None:
    after = lasting(steady(tok_s, spread=spread), 0.25)
    assert (after.lasting_tok_s == tok_s) is begins_anew
    assert (after.lasted_s == DEMAND_S) is begins_anew


def test_a_calm_begins_it_anew_as_well() -> None:
    assert lasting(steady(1.0, mean=400.0), 0.25).lasting_tok_s == 1.0


def test_what_was_in_flight_is_the_mean_of_the_same_time() -> None:
    after = lasting(steady()._replace(held=2.0, flown=80.0), 10.0)
    assert after.held == pytest.approx(8.0 - 6.0 * exp(-0.1))
    assert after.flown == 0.0


@given(st.floats(0.1, 5000.0), st.floats(0.0, 5000.0), st.floats(0.0, 20.0), st.floats(0.25, 3600.0))
def test_the_spread_moves_towards_the_square_of_the_last_difference(
    tok_s: float, mean: float, spread: float, elapsed_s: float
) -> None:
    at_once = lasting(steady(tok_s, mean=mean, spread=spread), elapsed_s)
    settled = lasting(steady(tok_s, mean=mean, spread=0.0), elapsed_s)
    part = 1.0 - exp(-elapsed_s / LONGEST_S)
    square = settled.spread / part
    assert at_once.spread == pytest.approx(spread + (square - spread) * part)


def test_the_spread_of_requests_that_come_at_random_is_that_of_a_count() -> None:
    # A demand that fades in DEMAND_S is known as well as a count over twice that time: at 4 requests a second it lies
    # the square root of 120 requests above the mean, or below it.
    off = 120.0**0.5 * 256.0 / (2.0 * DEMAND_S)
    for tok_s in (1024.0 + off, 1024.0 - off):
        seen = lasting(steady(tok_s, mean=1024.0), 1e-6).spread / (1.0 - exp(-1e-6 / LONGEST_S))
        assert seen == pytest.approx(POISSON_SPREAD, rel=0.1)

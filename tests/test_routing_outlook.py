"""What one more costs in the end: the equations hold for any curves and any demand, and the demand is divided best."""

from itertools import pairwise
from math import isfinite
from typing import Any

import pytest
from fakes.speeds import TABLES, speed_curve
from hypothesis import assume, given
from hypothesis import strategies as st

from proxy.model import Demand
from proxy.routing.delays import MAX_LISTED, Delays, delays
from proxy.routing.outlook import MAX_LOADED, MOST_LOADED, Outlook, costs_of, divided, outlook
from proxy.routing.paces import mean_held

DEMANDS = st.builds(Demand, st.floats(0.0, 1e5), prompt_tok_s=st.floats(0.0, 1e7))
SPEEDS = st.lists(st.floats(1.0, 5000.0), min_size=1, max_size=40)
PREFILLS = st.none() | st.floats(100.0, 50_000.0)


def both_of(ours: dict[float, float], theirs: dict[float, float]) -> tuple[Delays, Delays]:
    return delays(speed_curve(ours)), delays(speed_curve(theirs))


@given(TABLES, TABLES, PREFILLS, PREFILLS, DEMANDS)
def test_for_any_curves_costs_are_finite_and_of_equal_inputs_equal(
    ours: dict[float, float], theirs: dict[float, float], first: float | None, second: float | None, demand: Demand
) -> None:
    pair = (delays(speed_curve(ours), first), delays(speed_curve(theirs), second))
    made = outlook(*pair, demand)
    assert outlook(*pair, demand) == made
    for ahead in made:
        assert all(map(isfinite, [*ahead.steps, ahead.rise, *ahead.stops, ahead.stops_rise]))


@given(TABLES, DEMANDS, st.integers(0, MAX_LISTED + 40), st.integers(2, 40))
def test_many_at_once_cost_as_much_as_one_after_the_other(
    table: dict[float, float], demand: Demand, n: int, weight: int
) -> None:
    ahead, _ = outlook(*both_of(table, table), demand)
    assert ahead.added(n, weight) == pytest.approx(sum(ahead.added(n + more, 1) for more in range(weight)))


@given(st.lists(st.floats(100.0, 500.0), min_size=1, max_size=20), st.floats(1e-6, MAX_LOADED))
def test_each_state_costs_what_follows_from_its_neighbours(speeds: list[float], loaded: float) -> None:
    """One more delays itself and all others until the next change, and is then one more in the state that follows."""
    tok_s = loaded * speeds[-1]
    ahead, held = costs_of(speeds, tok_s, 0.0), mean_held(speeds, tok_s)
    before = 0.0
    for n in range(len(speeds) + 20):
        speed = speeds[min(n, len(speeds)) - 1] if n else 0.0
        assert tok_s * ahead.added(n, 1) == pytest.approx(held - n + speed * before, rel=1e-6, abs=1e-6 * (held + n))
        before = ahead.added(n, 1)


@given(st.lists(st.floats(100.0, 500.0), min_size=1, max_size=20), st.floats(0.01, MAX_LOADED), st.floats(0.01, 1.0))
def test_a_second_without_a_token_costs_the_wait_of_all_and_what_comes_meanwhile(
    speeds: list[float], loaded: float, read: float
) -> None:
    tok_s, stall_s = loaded * speeds[-1], read / max(speeds)
    ahead, held = costs_of(speeds, tok_s, stall_s), mean_held(speeds, tok_s)
    decoding = costs_of(speeds, tok_s, 0.0)
    for n in range(1, len(speeds) + 20):
        waited = n - held + tok_s * decoding.added(n, 1)
        assert ahead.stopped(n) == pytest.approx(waited, rel=1e-6, abs=1e-6 * (held + n))
        whole = ahead.added(n - 1, 1) + stall_s * ahead.stopped(n)
        assert whole == pytest.approx(decoding.added(n - 1, 1), rel=1e-6, abs=1e-6 * (held + n)), "its own prompt apart"


def test_with_nobody_to_come_one_more_costs_its_own_time() -> None:
    # Two leave one after the other: 2 / 80 s for both, then 1 / 50 s; against 1 / 50 s of one alone.
    alone = costs_of([50.0, 80.0], 0.0, 0.0)
    assert alone.added(1, 1) == pytest.approx(2 / 80)
    assert [alone.stopped(n) for n in (1, 2, 3)] == pytest.approx([1.0, 2.0, 3.0]), "as many wait as there are"


@given(SPEEDS, SPEEDS, st.floats(0.0, 20_000.0), st.floats(0.0, 1.0))
def test_no_other_division_of_the_demand_holds_much_fewer_in_flight(
    first: list[float], second: list[float], tok_s: float, share: float
) -> None:
    ours, theirs = divided(first, second, tok_s)
    assert 0.0 <= ours <= first[-1]
    assert 0.0 <= theirs <= second[-1]
    part = (ours + theirs) * share
    assume(part < MAX_LOADED * first[-1] and ours + theirs - part < MAX_LOADED * second[-1])
    other = mean_held(first, part) + mean_held(second, ours + theirs - part)
    assert mean_held(first, ours) + mean_held(second, theirs) <= 1.1 * other


@pytest.mark.parametrize("asked", [0.5, 0.9, 5.0])
def test_a_burst_is_not_believed_to_go_on(asked: float) -> None:
    first, second = [100.0, 200.0], [80.0, 300.0]
    both = MAX_LOADED * (first[-1] + second[-1])
    assert sum(divided(first, second, asked * both)) == pytest.approx(min(asked, MOST_LOADED) * both)


def test_a_prompt_that_holds_up_all_makes_each_further_one_dearer() -> None:
    slow, fast = (delays(speed_curve({1: 50.0, 8: 250.0}), prefill) for prefill in (500.0, 50_000.0))
    demand = Demand(100.0, prompt_tok_s=150.0)
    told = [outlook(each, each, demand)[0].added(4, 1) for each in (slow, fast)]
    assert told[0] > told[1]
    assert outlook(slow, slow, Demand(100.0))[0].added(4, 1) == outlook(fast, fast, Demand(100.0))[0].added(4, 1)


def test_the_more_is_asked_for_the_more_one_costs() -> None:
    pair = both_of({1: 60.0, 8: 300.0}, {1: 50.0, 8: 350.0})
    told = [outlook(*pair, Demand(tok_s)) for tok_s in (0.0, 150.0, 400.0, 600.0)]
    for less, more in pairwise(told):
        assert all(one.added(4, 1) < other.added(4, 1) for one, other in zip(less, more, strict=True))


def test_demands_that_hardly_differ_share_their_tables() -> None:
    pair = both_of({1: 60.0, 8: 300.0}, {1: 50.0, 8: 350.0})
    lately = Demand(205.0, 400.0, 256.0, prompt_tok_s=320.0)
    assert outlook(*pair, lately) is outlook(*pair, Demand(207.0, 900.0, 100.0, prompt_tok_s=321.0))
    assert outlook(*pair, lately) is not outlook(*pair, lately._replace(tok_s=300.0, prompt_tok_s=470.0))
    assert outlook(*pair, lately) is not outlook(*pair, lately._replace(prompt_tok_s=470.0))


@given(
    steps=st.lists(st.floats(0.0, 1e6), min_size=1, max_size=40),
    rise=st.floats(0.0, 1e3),
    n=st.integers(0, 80),
    weight=st.integers(1, 200),
)
def test_many_sequences_cost_what_they_cost_one_after_the_other(
    steps: list[float], rise: float, n: int, weight: int
) -> None:
    made = Outlook(tuple(steps), rise, (1.0,), 0.0)
    last = len(steps) - 1
    each = [steps[at] if at <= last else steps[last] + (at - last) * rise for at in range(n, n + weight)]
    assert made.added(n, weight) == pytest.approx(sum(each), rel=1e-9, abs=1e-9)


def test_the_most_that_a_body_may_claim_is_weighed_without_going_through_it() -> None:
    counted: list[int] = []

    class Steps(tuple[float, ...]):
        def __getitem__(self, at: Any) -> Any:
            counted.append(1)
            return super().__getitem__(at)

    assert Outlook(Steps((1.0,) * 512), 0.5, (1.0,), 0.0).added(100, 65_536) > 65_536
    assert len(counted) < 5

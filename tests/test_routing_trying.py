"""When the other role is tried: seldom, at a bounded cost, and only where curves do not tell."""

from itertools import pairwise
from math import inf

import pytest
from fakes.speeds import Table, of_both
from hypothesis import given
from hypothesis import strategies as st

from proxy.model import SPECULATIVE, Demand, EngineLoad
from proxy.routing.belief import SETTLED_VARIANCE
from proxy.routing.learner import Learner, Look
from proxy.routing.trying import (
    CLEAR,
    LASTS_S,
    LONGEST_WAIT_S,
    MOST_REGRET,
    MOST_SHARE,
    WAIT_S,
    Tries,
    asked,
    foretold,
    is_clear,
    is_lull,
    is_over,
    shows,
)

FLAT: Table = {1: 40.0, 8: 310.0, 64: 900.0}


def after(*costs: float) -> tuple[Tries, float]:
    """Trials of ten seconds that cost so much, one after the other, and when the last one ended."""
    tries, now_s = Tries(), 0.0
    for cost in costs:
        now_s = max(now_s, tries.next_at_s)
        tries.begin(SPECULATIVE, 4.0, now_s, 0.0)
        now_s += 10.0
        tries.end(now_s, 40.0 + cost)
    return tries, now_s


def test_the_first_trial_is_due_at_once() -> None:
    assert Tries().due(inf, 0.0, 0.0, inf)


def test_no_second_one_begins_while_one_is_on() -> None:
    tries = Tries()
    tries.begin(SPECULATIVE, 4.0, 0.0, 0.0)
    assert not tries.due(0.0, 1e9, 1e9, 0.0)


def test_trials_follow_each_other_ever_more_seldom() -> None:
    begun: list[float] = []
    tries = Tries()
    for minute in range(60 * 24 * 4):
        now_s = 60.0 * minute
        if tries.due(0.0, now_s, 1e12, 4.0):
            begun.append(now_s)
            tries.begin(SPECULATIVE, 4.0, now_s, 0.0)
            tries.end(now_s, 0.0)
    waits = [later - before for before, later in pairwise(begun)]
    assert waits == [min(WAIT_S * 2.0**power, LONGEST_WAIT_S) for power in range(len(waits))]
    assert len(waits) > 8


def test_later_ones_are_made_only_where_little_is_lost() -> None:
    tries, now_s = after(0.0)
    now_s += WAIT_S
    assert tries.due(0.9 * MOST_REGRET, now_s, 1e9, 4.0)
    assert not tries.due(1.1 * MOST_REGRET, now_s, 1e9, 4.0)


def test_what_trials_cost_is_paid_off_before_the_next() -> None:
    tries, now_s = after(100.0)
    assert tries.spent_s == pytest.approx(100.0)
    assert not tries.due(0.0, now_s + WAIT_S, 1.9 * 100.0 / MOST_SHARE, 0.0)
    assert tries.due(0.0, now_s + WAIT_S, 2.1 * 100.0 / MOST_SHARE, 0.0)


def test_what_the_next_one_may_cost_is_earned_before_it() -> None:
    tries, now_s = after(0.0)
    price_s = 3.0 * LASTS_S
    assert not tries.due(0.0, now_s + WAIT_S, 1.9 * price_s / MOST_SHARE, 3.0)
    assert tries.due(0.0, now_s + WAIT_S, 2.1 * price_s / MOST_SHARE, 3.0)


@given(st.lists(st.tuples(st.floats(0.0, 1e5), st.floats(0.0, 60.0), st.floats(0.0, 100.0)), max_size=60))
def test_whatever_happens_all_but_the_last_trial_cost_a_hundredth_at_most(steps: list[tuple[float, ...]]) -> None:
    tries, now_s, area_s, before = Tries(), 0.0, 0.0, 0.0
    for waited_s, lasted_s, in_flight in steps:
        now_s, area_s = now_s + waited_s, area_s + waited_s * in_flight
        if tries.due(0.0, now_s, area_s, 3.0):
            assert not tries.made or 2.0 * (tries.spent_s + 3.0 * LASTS_S) <= MOST_SHARE * area_s
            tries.begin(SPECULATIVE, 3.0, now_s, area_s)
            now_s, area_s = now_s + lasted_s, area_s + lasted_s * in_flight
            tries.end(now_s, area_s)
        assert tries.spent_s >= before  # luck in one pays for no other
        before = tries.spent_s


def test_a_trial_ends_where_too_many_are_in_flight_or_with_time() -> None:
    tries = Tries()
    tries.begin(SPECULATIVE, 9.0, 100.0, 0.0)
    this = tries.now
    assert this is not None
    assert not is_over(this, 24, 100.0 + 0.9 * LASTS_S)
    assert is_over(this, 25, 100.0)
    assert is_over(this, 1, 100.0 + LASTS_S)


def test_a_clear_difference_needs_less_evidence() -> None:
    variance = 4.0 * SETTLED_VARIANCE
    assert not is_clear(0.0, variance)
    assert is_clear(0.0, SETTLED_VARIANCE)
    assert is_clear(-1.01 * CLEAR * variance**0.5, variance)
    assert not is_clear(1e3, inf)


@given(st.floats(0.0, 1e9), st.integers(0, 10_000))
def test_no_prediction_lets_a_trial_fill_up_without_bound(held: float, in_flight: int) -> None:
    assert max(1, in_flight) <= foretold(held, in_flight) <= max(1.0, 2.0 * in_flight + 16.0)


def test_a_lull_is_fewer_than_chance_mostly_leaves() -> None:
    assert is_lull(10, 16.0)
    assert not is_lull(11, 16.0)
    assert is_lull(0, 4.0)


def test_a_young_demand_is_taken_for_more_by_what_it_may_be_off() -> None:
    tok_s = 1000.0
    young = Demand(tok_s=0.2835 * tok_s, answer_tokens=100.0)  # after five seconds of a thousand a second
    old = Demand(tok_s=tok_s, answer_tokens=100.0, lasting_tok_s=tok_s, lasted_s=300.0)
    assert asked(young, 5.0) == pytest.approx(tok_s * (1.0 + 1.5 / 50.0**0.5), rel=0.01)
    assert tok_s < asked(old, 300.0) < asked(young, 5.0)


def test_a_favoured_backend_that_tells_its_steps_must_have_shown_them_alone() -> None:
    learner = Learner(of_both(FLAT, FLAT), shared=True)
    side = learner.sides[SPECULATIVE]
    assert not shows(learner, SPECULATIVE, 4)
    sums = [0.0] * 6
    for second in range(8):
        us = 1e6 * 4 / 155.0
        for place, more in enumerate((1.0, 4.0, 4 * us, 16.0, us * 4, 4.0)):
            sums[place] += 155.0 / 4 * more
        load = EngineLoad(4, 0, moments=tuple(sums))
        learner.polled(SPECULATIVE, Look(load, float(second), (4.0 * second, 16.0 * second), (0, 0)))
    assert shows(learner, SPECULATIVE, 4)
    assert not shows(learner, SPECULATIVE, 40)
    side.alone = None
    assert not shows(learner, SPECULATIVE, 4)

"""The mean number in flight over the time of an answer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.routing.held import APART_S, MOST, Held


def test_the_mean_is_that_of_the_time_in_between() -> None:
    held = Held()
    held.note(2, 10.0)
    held.note(6, 12.0)
    held.note(0, 14.0)
    assert held.mean(10.0) == pytest.approx(4.0)
    assert held.mean(13.0) == pytest.approx(6.0)


def test_what_began_before_anything_was_noted_is_not_known() -> None:
    held = Held()
    assert held.mean(0.0) is None
    held.note(1, 10.0)
    assert held.mean(9.0) is None
    assert held.mean(10.0) is None  # no time has passed


@given(
    st.lists(st.tuples(st.integers(0, 500), st.integers(0, 3000).map(lambda ms: ms / 1000)), min_size=2, max_size=60)
)
def test_a_mean_lies_within_what_was_held(noted: list[tuple[int, float]]) -> None:
    held, now_s = Held(), 0.0
    for count, elapsed_s in noted:
        held.note(count, now_s)
        now_s += elapsed_s
    held.note(0, now_s)
    for since_s in (0.0, now_s / 3, now_s / 2):
        mean = held.mean(since_s)
        assert mean is None or -1e-6 <= mean <= max(count for count, _ in noted) + 1e-6


def test_memory_is_bounded_and_what_is_forgotten_is_not_known() -> None:
    held = Held()
    for step in range(5 * MOST):
        held.note(3, step * APART_S)
    assert len(held._instants_s) < 2 * MOST
    assert held.mean(0.0) is None
    assert held.mean(5 * MOST * APART_S - 10.0) == pytest.approx(3.0)


def test_a_clock_that_goes_back_begins_anew() -> None:
    held = Held()
    held.note(3, 100.0)
    held.note(3, 5.0)
    assert held.mean(50.0) is None
    held.note(0, 7.0)
    assert held.mean(5.0) == pytest.approx(3.0)


def test_sums_go_on_with_what_is_in_flight_now() -> None:
    held = Held()
    held.note(2, 10.0)
    held.note(3, 12.0)
    assert held.sums(14.0) == (2 * 2.0 + 3 * 2.0, 4 * 2.0 + 9 * 2.0)

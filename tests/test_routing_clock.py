"""What an engine tells of its steps beside what was in flight: believed, taken for a count, or not at all."""

from collections.abc import Sequence

import pytest

from proxy.routing.clock import WATCHED_S, Clock

POLLS = int(WATCHED_S) + 1


def steps(n: float, step_s: float, count: float) -> Sequence[float]:
    """By how much moments grow."""
    return (count, n * count, 1e6 * step_s * count, n * n * count, 1e6 * n * step_s * count, 2.0 * n * count)


def watched(gained: Sequence[float], held: tuple[float, float], decoding: float = 1.0) -> tuple[Clock, bool]:
    """A clock after some polls that were all alike, a second apart, and what it said of the last."""
    clock = Clock()
    for _ in range(POLLS - 1):
        clock.look(gained, held, decoding, 1, 1.0)
    return clock, clock.look(gained, held, decoding, 1, 1.0)


def test_steps_that_fill_the_time_in_flight_are_believed() -> None:
    clock, possible = watched(steps(4.0, 0.02, 50.0), (4.0, 16.0))
    assert possible and not clock.holds_more


def test_few_steps_that_were_counted_are_believed() -> None:
    clock, possible = watched(steps(3.0, 0.02, 5.0), (4.0, 16.0))
    assert possible and not clock.holds_more


def test_steps_with_prompts_in_them_are_seen_through() -> None:
    clock, _ = watched(steps(4.0, 0.02, 50.0), (4.0, 16.0), decoding=0.8)
    assert clock.holds_more


def test_idle_time_in_steps_is_seen_through() -> None:
    # A tenth of each second is in flight, and the first step has all the rest.
    clock, possible = watched(steps(1.0, 1.0 / 5.0, 5.0), (0.1, 0.1))
    assert clock.holds_more and not possible


def test_a_single_look_with_idle_time_in_it_is_no_evidence() -> None:
    clock, _ = watched(steps(4.0, 0.02, 50.0), (4.0, 16.0))
    assert not clock.look(steps(1.0, 0.2, 5.0), (0.1, 0.1), 1.0, 1, 1.0)
    assert not clock.holds_more


def test_an_engine_that_serves_others_too_is_taken_at_its_word() -> None:
    clock, possible = watched(steps(12.0, 0.05, 20.0), (4.0, 16.0))
    assert clock.serves_others and possible and not clock.holds_more


def test_ranks_that_step_side_by_side_are_one_batch() -> None:
    clock = Clock()
    for _ in range(POLLS):
        clock.look(steps(4.0, 0.02, 8 * 50.0), (32.0, 1024.0), 1.0, 8, 1.0)
    assert clock.held == pytest.approx(clock.batch)
    assert not clock.holds_more


def test_nothing_is_believed_before_a_clock_has_been_watched() -> None:
    assert not Clock().look(steps(4.0, 0.02, 50.0), (4.0, 16.0), 1.0, 1, 1.0)


def test_without_a_count_of_ones_own_steps_are_all_there_is() -> None:
    clock, possible = watched(steps(4.0, 0.2, 50.0), (0.0, 0.0))
    assert possible and not clock.holds_more

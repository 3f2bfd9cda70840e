"""The whole state is told at once after what must be seen, soon while the load moves, and else every few turns."""

from itertools import cycle, pairwise

from proxy.model import Role
from proxy.watch.due import CALM_TURNS, MOVING_TURNS, Due
from proxy.watch.history import Sample

CALM = Sample(0.0, 3, 2, 0, 5.0, 4, 9, Role.SPECULATIVE, 1, 1, None, None, None, None, None, None, 0, 0)
MOVED = CALM._replace(speculative_in_flight=4)
WAITING = CALM._replace(waiting=1)


def begun() -> Due:
    """It has told a calm state just now."""
    due = Due()
    assert due.turn(CALM, 0), "who reads first gets it"
    return due


def told(due: Due, samples: list[Sample], written: int = 0) -> list[int]:
    """The turns, from 1, after which the state was due."""
    return [turn for turn, sample in enumerate(samples, 1) if due.turn(sample, written)]


def test_a_calm_state_is_made_every_fifth_turn() -> None:
    assert told(begun(), [CALM] * 50) == list(range(CALM_TURNS, 51, CALM_TURNS))
    assert CALM_TURNS <= 5, "nothing is wrong for longer than five seconds"


def test_a_load_that_moves_every_turn_has_it_made_every_third_turn() -> None:
    moving = [sample for sample, _ in zip(cycle((MOVED, CALM)), range(30), strict=False)]
    found = told(begun(), moving)
    assert found[0] <= CALM_TURNS
    assert all(MOVING_TURNS <= later - before <= CALM_TURNS for before, later in pairwise(found))


def test_a_load_that_moved_once_is_told_soon_and_once() -> None:
    assert told(begun(), [MOVED] * 8) == [MOVING_TURNS, MOVING_TURNS + CALM_TURNS]


def test_an_entry_of_the_journal_has_it_made_at_once_and_once() -> None:
    due = begun()
    assert told(due, [CALM]) == []
    assert told(due, [CALM] * 4, written=1) == [1]


def test_requests_that_begin_to_wait_have_it_made_at_once() -> None:
    due = begun()
    assert told(due, [CALM, WAITING, WAITING._replace(waiting=2)]) == [2]


def test_requests_that_wait_now_and_then_do_not_have_it_made_each_turn() -> None:
    flapping = [sample for sample, _ in zip(cycle((WAITING, CALM)), range(60), strict=False)]
    assert len(told(begun(), flapping)) <= 60 // 2

"""The whole state is told at once after what must be seen, and else every few turns, however the load moves."""

from itertools import cycle, islice

import pytest

from proxy.model import Role
from proxy.watch.due import EVERY_TURNS, Due
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


@pytest.mark.parametrize("samples", [(CALM,), (MOVED, CALM)])
def test_the_state_is_made_every_fifth_turn(samples: tuple[Sample, ...]) -> None:
    assert told(begun(), list(islice(cycle(samples), 50))) == list(range(EVERY_TURNS, 51, EVERY_TURNS))
    assert EVERY_TURNS <= 5, "nothing is wrong for longer than five seconds"


def test_an_entry_of_the_journal_has_it_made_at_once_and_once() -> None:
    due = begun()
    assert told(due, [CALM]) == []
    assert told(due, [CALM] * 4, written=1) == [1]


def test_requests_that_begin_to_wait_have_it_made_at_once() -> None:
    due = begun()
    assert told(due, [CALM, WAITING, WAITING._replace(waiting=2)]) == [2]


@pytest.mark.parametrize("kind", ["named", "ruled"])
def test_it_is_made_as_soon_as_it_is_certain_that_others_choose_the_backend(kind: str) -> None:
    chosen = CALM._replace(**{kind: 2})
    due = begun()
    due.turn(CALM, 1)
    assert told(due, [chosen] * 4, 1) == [4], "four times two requests"
    assert told(due, [CALM._replace(speculative_requests=0, baseline_requests=0)] * 4, 1) == []
    due.turn(chosen, 2)
    assert told(due, [CALM] * 4, 2) == [4], "and that they do no more"


def test_some_requests_among_others_that_name_their_backend_do_not_have_it_made() -> None:
    samples = [CALM._replace(named=turn % 2) for turn in range(50)]
    assert told(begun(), samples) == list(range(EVERY_TURNS, 51, EVERY_TURNS))


def test_requests_that_wait_now_and_then_do_not_have_it_made_each_turn() -> None:
    assert len(told(begun(), list(islice(cycle((WAITING, CALM)), 60)))) <= 60 // 3

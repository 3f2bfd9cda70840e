"""When an engine's word is doubted, and when it is believed again."""

import pytest

from proxy.routing.trust import LEAST_HEARD, TOLERATED, UNREAD, Trust, tolerated


def compared(trust: Trust, miss: float, times: int, most: float = TOLERATED) -> list[bool]:
    return [trust.compare(miss, most) for _ in range(times)]


@pytest.mark.parametrize("miss", [0.3, -0.3, 5.0, -5.0])
def test_answers_that_miss_it_by_much_in_the_mean_make_an_end_of_it(miss: float) -> None:
    assert compared(Trust(), miss, LEAST_HEARD) == [False] * (LEAST_HEARD - 1) + [True]


def test_answers_that_miss_it_by_what_is_tolerated_do_not() -> None:
    assert not any(compared(Trust(), 0.9 * TOLERATED, 200))


def test_answers_that_miss_it_either_way_by_chance_do_not() -> None:
    trust = Trust()
    assert not any(trust.compare((-1) ** number * 0.3, TOLERATED) for number in range(200))


def test_it_is_earned_once_enough_answers_were_heard() -> None:
    trust = Trust()
    compared(trust, 0.0, LEAST_HEARD - 1)
    assert not trust.earned
    compared(trust, 0.0, 1)
    assert trust.earned


def test_what_is_doubted_must_agree_better_than_what_is_not() -> None:
    trust = Trust()
    trust.turn()
    assert trust.doubted
    assert not any(compared(trust, 0.9 * TOLERATED, 200))
    assert any(compared(trust, 0.0, 200))
    trust.turn()
    assert (trust.doubted, trust.heard) == (False, 0)


def test_more_is_tolerated_where_prompts_are_read_or_nothing_is_known_of_them() -> None:
    assert tolerated(0.0, prefill_known=True) == TOLERATED
    assert TOLERATED < tolerated(0.4, prefill_known=True) < UNREAD
    assert tolerated(0.0, prefill_known=False) == UNREAD

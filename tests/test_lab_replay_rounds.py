"""Ways run by their names, and the number that is looked for."""

from collections.abc import Sequence
from typing import Any

import pytest
from fakes.replayed import ground, random_traffic

from proxy.lab.replay.candidates import AS_IT_IS
from proxy.lab.replay.rounds import crew, mean_of, with_numbers


class FakeCrew:
    """Means that are least at one number."""

    def __init__(self, best: int, limit: int = 64) -> None:
        self.ground: Any = ground(random_traffic(5, 1.0), limit=limit)
        self.best = best
        self.asked: list[int] = []

    def means(self, names: Sequence[str]) -> list[float]:
        numbers = [int(name.partition(":")[2]) for name in names]
        self.asked += numbers
        return [float(abs(number - self.best)) for number in numbers]


@pytest.mark.parametrize("best", [1, 3, 5, 7, 20, 64])
def test_the_best_number_is_found_between_those_tried_first(best: int) -> None:
    staff: Any = FakeCrew(best)
    assert with_numbers(["overflow"], staff, peak=100) == [f"overflow:{best}"]
    assert len(staff.asked) == len(set(staff.asked))


def test_numbers_far_above_what_ever_was_in_flight_are_not_tried() -> None:
    staff: Any = FakeCrew(3)
    with_numbers(["threshold"], staff, peak=10)
    assert max(staff.asked) <= 20


def test_names_stay_in_their_order_and_come_once() -> None:
    staff: Any = FakeCrew(2)
    named = with_numbers(["auto", "overflow", "overflow:2", "auto", "first"], staff, peak=9)
    assert named == ["auto", "overflow:2", "first"]


def test_every_run_is_told_and_ways_get_the_same_requests() -> None:
    traffic, told = random_traffic(200, 2.0), list[tuple[int, int]]()
    with crew(ground(traffic), traffic, 1, lambda *counts: told.append(counts)) as staff:
        one, other = staff.runs([AS_IT_IS, "only_baseline"])
        (mean_s,) = staff.means(["only_baseline"])
    assert told == [(1, 2), (2, 2), (3, 3)]
    assert len(one.times.e2e_s) == len(other.times.e2e_s) == 200
    assert mean_s == mean_of(other.times, traffic.counted)

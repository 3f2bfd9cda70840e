"""Those who wait, in lanes: where the first of a lane finds no place, nobody behind it in that lane does.

So whoever gives places looks at the first of each lane, and there are no more lanes than ways to wait, however many
wait. Who gets a place is not here (admission.py), nor is what puts a request into a lane (dispatch/sight.py).
"""

from bisect import bisect_left, insort
from collections.abc import Container, Iterator
from typing import Generic, TypeVar

from proxy.dispatch.sight import Lane
from proxy.model import Role

T = TypeVar("T")

# Whose turn is before whose: the lower one's.
Turn = int


class _Line:
    """One lane: turns in their order, and what the first of them was last seen to claim."""

    __slots__ = ("claims", "turns")

    def __init__(self, claims: frozenset[Role]) -> None:
        self.claims = claims
        self.turns: list[Turn] = []


class Lanes(Generic[T]):
    """Waiters by their turns. Coming, leaving and counting take no longer where many wait, but for moving some bytes of
    a list. `places` tells of each who it is and in which lane, in no order."""

    def __init__(self) -> None:
        self._lines: dict[Lane, _Line] = {}
        self.places: dict[Turn, tuple[T, Lane]] = {}
        self._turns: list[Turn] = []

    def __iter__(self) -> Iterator[T]:
        """All, in their order."""
        return (self.places[turn][0] for turn in self._turns)

    def put(self, turn: Turn, waiter: T, lane: Lane, claims: frozenset[Role]) -> bool:
        """Put somebody into a lane, or from another one into this one; whether it is the first there, so that the
        lane claims what it does."""
        place = self.places.get(turn)
        if place is None:
            insort(self._turns, turn)
        elif place[1] != lane:
            self._leave(turn, place[1])
        self.places[turn] = (waiter, lane)
        line = self._lines.get(lane)
        if line is None:
            line = self._lines[lane] = _Line(claims)
        if place is None or place[1] != lane:
            insort(line.turns, turn)
        if line.turns[0] != turn:
            return False
        line.claims = claims
        return True

    def drop(self, turn: Turn) -> None:
        """Somebody waits no more."""
        place = self.places.pop(turn, None)
        if place is not None:
            self._leave(turn, place[1])
            del self._turns[bisect_left(self._turns, turn)]

    def first(self, seen: Container[Turn]) -> T | None:
        """Who is next among the first of all lanes, but for those that were `seen`; None where all were."""
        heads = [turn for line in self._lines.values() if (turn := line.turns[0]) not in seen]
        if not heads:
            return None
        return self.places[min(heads)][0]

    def claimed(self, before: Turn | None = None) -> frozenset[Role]:
        """The backends whose next room is for those who wait, or for those of them whose turn is `before`."""
        lines = self._lines.values()
        return frozenset().union(*(line.claims for line in lines if before is None or line.turns[0] < before))

    def ahead(self, role: Role, before: Turn) -> int:
        """How many wait for `role`, maybe among others, whose turn is `before`."""
        return sum(bisect_left(line.turns, before) for line in self._lines.values() if role in line.claims)

    def behind(self, after: Turn, most: int) -> list[T]:
        """Those whose turns come next `after` one, so many at `most`."""
        begin = bisect_left(self._turns, after + 1)
        return [self.places[turn][0] for turn in self._turns[begin : begin + most]]

    def _leave(self, turn: Turn, lane: Lane) -> None:
        turns = self._lines[lane].turns
        del turns[bisect_left(turns, turn)]
        if not turns:
            del self._lines[lane]

"""When the events of streams are due: by instants on a grid and not by pauses, so that a late one delays no other.

Each interval has a line of its own in which the streams stand in the order of their turns: whoever had one goes to its
end. That is exact as long as all streams of a line have the same interval, and costs no heap.
"""

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
# The golden ratio's fraction: any number of streams, one after another at this much of an interval, lie evenly.
_STEP = 0.6180339887498949
_NS_PER_S = 1e9


class Pace(Generic[T]):
    """The turns of some streams."""

    def __init__(self) -> None:
        self._lines: dict[tuple[int, bool], deque[tuple[int, T]]] = {}
        self._begun = 0

    def begin(self, stream: T, interval_ns: int, now_ns: int, *, spread: bool) -> None:
        """A stream's first turn: on the next instant of its phase, which is its own or, not `spread`, everybody's."""
        self._begun += 1
        phase_ns = int(self._begun * _STEP % 1 * interval_ns) if spread else 0
        at_ns = now_ns - (now_ns - phase_ns) % interval_ns + interval_ns
        line = self._lines.setdefault((interval_ns, spread), deque())
        # Within one interval of now, as everyone in the line is: a walk from the end finds the place.
        behind: list[tuple[int, T]] = []
        while line and line[-1][0] > at_ns:
            behind.append(line.pop())
        line.append((at_ns, stream))
        line.extend(reversed(behind))

    def run(self, now_ns: int, turn: Callable[[T], bool]) -> None:
        """Give every stream its turn whose time has come; `turn` says whether it wants another."""
        for (interval_ns, _), line in self._lines.items():
            while line and line[0][0] <= now_ns:
                at_ns, stream = line.popleft()
                if turn(stream):
                    line.append((at_ns + interval_ns, stream))

    def wait_s(self, now_ns: int) -> float | None:
        """Seconds to the next turn, below nought when it is over; None when there is none to come."""
        firsts = [line[0][0] for line in self._lines.values() if line]
        return (min(firsts) - now_ns) / _NS_PER_S if firsts else None

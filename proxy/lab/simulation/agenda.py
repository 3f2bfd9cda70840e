"""What is to happen at instants of the virtual clock beside requests and engines. Who runs the clock is in trial.py."""

from collections.abc import Callable
from heapq import heappop, heappush

_NEVER_S = float("inf")


class Agenda:
    """Things to do, each at its instant, those of one instant in the order they were noted. `due_s` is the next one's,
    infinity where there is none."""

    __slots__ = ("_noted", "_number", "_things", "due_s")

    def __init__(self) -> None:
        self.due_s = _NEVER_S
        self._things: list[tuple[float, int, Callable[[], None], bool]] = []
        self._number = 0
        self._noted = 0

    @property
    def open(self) -> bool:
        """Whether something is still to happen that may change what becomes of a request."""
        return self._noted > 0

    def at(self, at_s: float, act: Callable[[], None], *, idle: bool = False) -> None:
        """Note something to do; `idle` says that nothing may wait for it, as for what merely looks."""
        self._number += 1
        self._noted += not idle
        heappush(self._things, (at_s, self._number, act, idle))
        self.due_s = self._things[0][0]

    def fire(self) -> None:
        """Do what is due at `due_s`."""
        _, _, act, idle = heappop(self._things)
        self._noted -= not idle
        self.due_s = self._things[0][0] if self._things else _NEVER_S
        act()

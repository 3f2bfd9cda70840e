"""Notices that a backend has gone silent in the middle of an answer. Slow clients are not its concern."""

import asyncio
from collections.abc import Callable


class StallGuard:
    """Calls `on_stall` once when a read has been waiting for `stall_s`.

    Costs two attribute writes a chunk: one timer looks at them now and then, instead of one timer for each chunk.
    """

    __slots__ = ("_loop", "_on_stall", "_stall_s", "_timer", "_waiting_since_s", "stalled")

    def __init__(self, stall_s: float, on_stall: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._stall_s = stall_s
        self._on_stall = on_stall
        self._waiting_since_s: float | None = None
        self.stalled = False
        self._timer = self._loop.call_later(stall_s, self._look)

    def waiting(self) -> None:
        """A read of the backend begins."""
        self._waiting_since_s = self._loop.time()

    def came(self) -> None:
        """The read has ended."""
        self._waiting_since_s = None

    def close(self) -> None:
        """Stop looking."""
        self._timer.cancel()

    def _look(self) -> None:
        since_s = self._waiting_since_s
        now_s = self._loop.time()
        if since_s is not None and now_s - since_s >= self._stall_s:
            self.stalled = True
            self._on_stall()
            return
        due_s = (now_s if since_s is None else since_s) + self._stall_s
        self._timer = self._loop.call_at(due_s, self._look)

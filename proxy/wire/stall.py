"""Notices that a passage stands still: a backend that says nothing more, or a client that takes nothing."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class Side:
    """One side of a passage: how long it may stand still (seconds), and what to do then. The limit may be lowered on
    the way; the change is noticed within the least limit of the passage."""

    limit_s: float
    on_stall: Callable[[], None]


class StallGuard:
    """Watches both sides of one passage, which waits for one of them at any time: the backend between `waiting` and
    `came`, else the client. The side that stands still for longer than its limit is stalled, once.

    `least_s` is the least limit that either side will ever have. Costs two attribute writes a call: one timer looks at
    them now and then, instead of one timer for each chunk.
    """

    __slots__ = ("_backend", "_client", "_every_s", "_loop", "_since_s", "_timer", "_waits_for", "stalled")

    def __init__(self, backend: Side, client: Side, *, least_s: float = float("inf")) -> None:
        self._loop = asyncio.get_running_loop()
        self._backend = backend
        self._client = client
        self._waits_for = client
        self._since_s = self._loop.time()
        self.stalled: Side | None = None
        self._every_s = min(backend.limit_s, client.limit_s, least_s)
        self._timer = self._loop.call_later(self._every_s, self._look)

    def now_s(self) -> float:
        """The present instant on the guard's clock."""
        return self._loop.time()

    def waiting(self, since_s: float | None = None) -> None:
        """A read of the backend begins, whose silence counts from now, or has counted since an instant before."""
        self._waits_for = self._backend
        self._since_s = self._loop.time() if since_s is None else since_s

    def came(self) -> None:
        """The read has ended: what came is on its way to the client."""
        self._waits_for = self._client
        self._since_s = self._loop.time()

    def close(self) -> None:
        """Stop looking."""
        self._timer.cancel()

    def _look(self) -> None:
        side, now_s = self._waits_for, self._loop.time()
        due_s = self._since_s + side.limit_s
        if now_s >= due_s and side is not self.stalled:
            self.stalled = side
            side.on_stall()
        # Whatever comes of it, the other side may be waited for from the next moment on.
        next_s = now_s + self._every_s
        self._timer = self._loop.call_at(min(due_s, next_s) if due_s > now_s else next_s, self._look)

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
    """Watches both sides of one passage, which waits for one of them at any time: for the client while it is `full`,
    else for the backend. The side that stands still for longer than its limit is stalled, once.

    One timer asks `heard_s` now and then for the instant of `clock` at which the backend last said something, instead
    of one timer for each chunk. `least_s` is the least limit that either side will ever have.
    """

    __slots__ = (
        *("_backend", "_client", "_every_s", "_heard_s", "_loop", "_now_s", "_since_s", "_timer", "_waits_for"),
        "stalled",
    )

    def __init__(
        self,
        backend: Side,
        client: Side,
        *,
        clock: Callable[[], float],
        heard_s: Callable[[], float],
        least_s: float = float("inf"),
    ) -> None:
        loop = self._loop = asyncio.get_running_loop()
        self._now_s, self._heard_s = clock, heard_s
        self._backend = backend
        self._client = client
        self._waits_for = backend
        self._since_s = clock()
        self.stalled: Side | None = None
        self._every_s = min(backend.limit_s, client.limit_s, least_s)
        self._timer = loop.call_later(self._every_s, self._look)

    def full(self) -> None:
        """The client takes no more: nothing is read until it does."""
        self._waits_for, self._since_s = self._client, self._now_s()

    def room(self) -> None:
        """The client takes again."""
        self._waits_for, self._since_s = self._backend, self._now_s()

    def close(self) -> None:
        """Stop looking."""
        self._timer.cancel()

    def _look(self) -> None:
        side, now_s = self._waits_for, self._now_s()
        due_s = max(self._since_s, self._heard_s()) + side.limit_s
        if now_s >= due_s and side is not self.stalled:
            self.stalled = side
            side.on_stall()
        # Whatever comes of it, the other side may be waited for from the next moment on.
        in_s = min(due_s - now_s, self._every_s) if due_s > now_s else self._every_s
        self._timer = self._loop.call_later(in_s, self._look)

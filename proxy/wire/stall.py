"""Notices that a passage's backend says nothing more. Clients that take nothing are noticed in front.py."""

import asyncio
from collections.abc import Callable


class StallGuard:
    """Watches one passage, which waits for its backend unless the client is `full`. A backend that stands still for
    longer than `limit_s` is stalled, once: `on_stall` is called.

    One timer asks `heard_s` now and then for the instant of `clock` at which the backend last said something, instead
    of one timer for each chunk. `limit_s` may be changed on the way; it is noticed within `least_s`, the least limit
    that there will ever be.
    """

    __slots__ = (
        "_every_s",
        "_full",
        "_heard_s",
        "_loop",
        "_now_s",
        "_on_stall",
        "_since_s",
        "_timer",
        "limit_s",
        "stalled",
    )

    def __init__(
        self,
        limit_s: float,
        on_stall: Callable[[], None],
        *,
        clock: Callable[[], float],
        heard_s: Callable[[], float],
        least_s: float = float("inf"),
    ) -> None:
        loop = self._loop = asyncio.get_running_loop()
        self.limit_s = limit_s
        self._on_stall = on_stall
        self._now_s, self._heard_s = clock, heard_s
        self._full = False
        self._since_s = clock()
        self.stalled = False
        self._every_s = min(limit_s, least_s)
        self._timer = loop.call_later(self._every_s, self._look)

    def full(self) -> None:
        """The client takes no more: nothing is read until it does."""
        self._full = True

    def room(self) -> None:
        """The client takes again."""
        self._full, self._since_s = False, self._now_s()

    def close(self) -> None:
        """Stop looking."""
        self._timer.cancel()

    def _look(self) -> None:
        now_s = self._now_s()
        due_s = max(self._since_s, self._heard_s()) + self.limit_s
        if now_s >= due_s and not (self._full or self.stalled):
            self.stalled = True
            self._on_stall()
            return
        in_s = min(due_s - now_s, self._every_s) if due_s > now_s else self._every_s
        self._timer = self._loop.call_later(in_s, self._look)

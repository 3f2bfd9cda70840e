"""Ends the waits of tasks that last too long, at a fraction of a timer's price: every request has such a wait, and
nearly none of them lasts too long. Or is in vain: what it is for will not come.

What is waited for, and what is said when it has not come, is in attempt.py.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

# A loop's timers go by milliseconds, and one may come that much early.
EARLY_S = 0.001


class Deadlines(dict[float, "Queue"]):
    """The waits by their limit (seconds). There are as many limits as the settings have, and have had."""

    def __missing__(self, within_s: float) -> "Queue":
        queue = self[within_s] = Queue(within_s)
        return queue

    def unheard(self) -> "Iterator[Wait]":
        """The present ones of which nothing has come yet; of those with one limit the first to begin first. They may be
        ended meanwhile."""
        return (wait for queue in tuple(self.values()) for wait in tuple(queue.waits) if not wait.heard)


class Queue:
    """The waits that have the same limit: the first to begin is the first to end, so that one timer does for all."""

    __slots__ = ("loop", "timer", "waits", "within_s")

    def __init__(self, within_s: float) -> None:
        self.loop = asyncio.get_running_loop()
        self.within_s = within_s
        # In the order in which they began. Those that are over are gone, whatever they would keep alive with them.
        self.waits: dict[Wait, None] = {}
        # Set while anybody waits, for the first of them or for one that is over.
        self.timer: asyncio.TimerHandle | None = None

    def look(self) -> None:
        """End the waits whose time has come, and look again when the next one's will."""
        self.timer = None
        until_s = self.loop.time() + EARLY_S
        while self.waits:
            first = next(iter(self.waits))
            if first.due_s > until_s:
                self.timer = self.loop.call_at(first.due_s, self.look)
                return
            del self.waits[first]
            first.end()


class Wait:
    """One wait of a task, which is cancelled when it lasts too long (`passed`) or is in vain (`forsaken`). What
    asyncio.timeout does. `heard` and `come` are for whoever waits: a part of what is waited for has been read, and how
    to ask whether some is there, as it is a turn before the task is told."""

    __slots__ = ("_asked", "_queue", "come", "due_s", "forsaken", "heard", "passed", "task")

    def __init__(self, queue: Queue, task: "asyncio.Task[Any]") -> None:
        self.passed = self.forsaken = self.heard = False
        self.come: Callable[[], bool] = _not_yet
        self.task = task
        self._asked = task.cancelling()
        self._queue = queue
        self.due_s = queue.loop.time() + queue.within_s
        if queue.timer is None:
            queue.timer = queue.loop.call_at(self.due_s, queue.look)
        queue.waits[self] = None

    def has_come(self) -> bool:
        """Whether a part of what is waited for is there; its task may not know yet."""
        return self.heard or self.come()

    def end(self) -> None:
        """It has lasted too long."""
        self.passed = True
        self.task.cancel()

    def forsake(self) -> None:
        """It is in vain."""
        self._queue.waits.pop(self, None)
        self.forsaken = True
        self.task.cancel()

    def is_ours(self) -> bool:
        """Whether a cancellation that has just come is this wait's alone; to be asked once, of each that comes."""
        return (self.passed or self.forsaken) and self.task.uncancel() <= self._asked

    def close(self) -> None:
        """The wait is over."""
        self._queue.waits.pop(self, None)
        self.come = _not_yet
        del self.task  # one that was cancelled keeps the frames it was in, and those keep this wait


def _not_yet() -> bool:
    return False

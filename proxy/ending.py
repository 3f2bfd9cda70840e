"""Ends the process where what is to end does not: a thread that waits for a disk that hangs would keep it for ever.

Not here: how it ends in an orderly way (serve.py, app.py).
"""

import contextlib
import os
import threading
from types import TracebackType

# What the process ends with then: something may not have been written.
FAILED = 1
# The last of the three standard streams, by its descriptor.
STDERR = 2
OVERDUE = b"the proxy has not ended: a file that it reads or writes, or a lookup, hangs; ended without it\n"


class Overdue:
    """Ends the process at the first of the moments that it was given, unless its block is over by then."""

    def __init__(self) -> None:
        self._timers: list[threading.Timer] = []
        self._over = False

    def __enter__(self) -> "Overdue":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over = True
        for each in self._timers:
            each.cancel()

    def within(self, limit_s: float) -> None:
        """End the process in so many seconds at the latest."""
        if self._over:
            return
        timer = threading.Timer(limit_s, _end_at_once)
        timer.daemon = True
        self._timers.append(timer)
        timer.start()


def _end_at_once() -> None:
    with contextlib.suppress(OSError):
        os.write(STDERR, OVERDUE)
    os._exit(FAILED)

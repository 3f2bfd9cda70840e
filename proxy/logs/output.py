"""Where lines go: to standard output at once, or to a thread that writes them in gatherings.

Lines may be lost, requests never: a server lets a thread write (`written_aside`), so that whoever does not read them
holds nothing up. What a line says is in requests.py and setup.py.
"""

import contextlib
import os
import select
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol, cast

# A thread that has a first line waits this long for more: a wakening costs as much as several lines, and takes the
# interpreter from the loop. A person who watches does not notice; a crash of the process loses no more than this.
GATHER_S = 0.05
# Lines that wait for their reader before more are dropped: seconds of a busy proxy, a few megabytes.
MAX_WAITING_LINES = 10_000
# Lines that warn find room for so many more: what an operator did, and what went wrong, is not lost behind the lines of
# requests. Hours of them, unless everything fails at once.
MAX_WARNINGS_BEYOND = 2_000
# Lines in one write: about what a pipe holds.
MAX_LINES_A_WRITE = 100
# A proxy that ends waits this long for the reader of its last lines.
LAST_LINES_WITHIN_S = 1.0


class Output(Protocol):
    """What takes lines."""

    def write(self, line: bytes) -> None:
        """Take a line, its end included."""
        ...

    def warn(self, line: bytes) -> None:
        """Take a line that is not to come late, and write it without waiting for more."""
        ...


class Direct:
    """Standard output, written at once. Its failure (its reader has gone, the disk is full) loses lines."""

    def __init__(self) -> None:
        self._stream = None if sys.stdout is None else sys.stdout.buffer

    def write(self, line: bytes) -> None:
        """Write a line, its end included."""
        if self._stream is not None:
            with contextlib.suppress(OSError, ValueError):
                self._stream.write(line)
                self._stream.flush()

    warn = write


@contextlib.contextmanager
def written_aside() -> Iterator["LineWriter"]:
    """While it lasts, loggers that `configure` sets up leave their lines to a thread. At the end the last lines get
    LAST_LINES_WITHIN_S to be read."""
    writer = LineWriter(_descriptor())
    _asides.append(writer)
    try:
        yield writer
    finally:
        _asides.remove(writer)
        writer.close(LAST_LINES_WITHIN_S)


def aside() -> "LineWriter | None":
    """The thread to leave lines to, where there is one."""
    return _asides[-1] if _asides else None


def _descriptor() -> int | None:
    # Asked of the stream: number 1 of a process that was started without standard output may be one of its sockets.
    if sys.stdout is None:
        return None
    try:
        sys.stdout.flush()
        return cast(int, sys.stdout.fileno())
    except (OSError, ValueError):
        return None


class LineWriter:
    """Writes lines to a file descriptor from a thread of its own; without a descriptor, nowhere.

    A line is written `gather_s` after it came, with those that came since, unless `hurry` is called. Up to `max_lines`
    wait, and `max_warnings` more that warn; further ones are dropped until there is room, and what `notice` makes of
    their number is then written in their place. Lines whose write fails are lost.
    """

    def __init__(
        self,
        descriptor: int | None,
        *,
        max_lines: int = MAX_WAITING_LINES,
        max_warnings: int = MAX_WARNINGS_BEYOND,
        gather_s: float = GATHER_S,
    ) -> None:
        self.notice: Callable[[int], bytes] = b"%d lines dropped\n".__mod__
        self.dropped = 0
        self._descriptor = descriptor
        self._max_lines = max_lines
        self._max_warnings = max_warnings
        self._gather_s = gather_s
        self._lines: deque[bytes] = deque()
        self._closed = False
        self._idle = False  # the thread has found nothing, and has to be told of the next line
        self._come = threading.Event()
        self._hurried = threading.Event()
        self._counting = threading.Lock()  # of what is dropped
        # A daemon, and past the buffers of `sys.stdout`: neither can keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="log lines", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Lines that wait, without those being written."""
        return len(self._lines)

    def write(self, line: bytes, beyond: int = 0) -> None:
        """Leave a line, its end included, to be written, where no more than `beyond` wait that have no room; returns at
        once. After `close` it is lost."""
        if self._closed:
            return
        if len(self._lines) >= self._max_lines + beyond:
            self._drop()
            return
        self._lines.append(line)
        # After the line is there: the thread looks for lines once more after it has said that it is idle.
        if self._idle:
            self._idle = False
            self._come.set()

    def warn(self, line: bytes) -> None:
        """Leave a line that warns: it has room where others have none, and is written at once with what waits before
        it."""
        self.write(line, self._max_warnings)
        self.hurry()

    def hurry(self) -> None:
        """Let what waits be written at once: what warns is not to come late, or be lost with a process that dies."""
        self._hurried.set()

    def close(self, within_s: float) -> bool:
        """Take no more lines and give those taken up to `within_s` seconds; whether none is left."""
        self._closed = True
        self._come.set()
        self.hurry()
        # A person who interrupts this wait wants what comes after it: the end.
        with contextlib.suppress(KeyboardInterrupt):
            self._thread.join(within_s)
        return not self._thread.is_alive()

    def _drop(self) -> None:
        with self._counting:
            self.dropped += 1
        self.hurry()

    def _run(self) -> None:
        last = False
        while not last:
            self._gather()
            last = self._closed  # asked before the lines are taken: those that came before the end are among them
            while self._lines or self.dropped:
                with contextlib.suppress(OSError):
                    self._put(b"".join(self._take()))

    def _gather(self) -> None:
        """Wait for a line, and then for more."""
        self._idle = True
        if not self._lines and not self._closed:
            self._come.wait()
        self._idle = False
        self._come.clear()
        self._hurried.wait(self._gather_s)
        self._hurried.clear()

    def _take(self) -> list[bytes]:
        """The next lines to write."""
        taken = [self._lines.popleft() for _ in range(min(len(self._lines), MAX_LINES_A_WRITE))]
        if self.dropped:
            with self._counting:
                dropped, self.dropped = self.dropped, 0
            self._lines.append(self.notice(dropped))
        return taken

    def _put(self, text: bytes) -> None:
        rest = memoryview(text)
        while rest and self._descriptor is not None:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:
                # Whoever shares the terminal or pipe may have made it so.
                room = select.poll()
                room.register(self._descriptor, select.POLLOUT)
                room.poll()


# Those in force, the newest last: logging is set up for the whole process, and anew by each reload.
_asides: list[LineWriter] = []

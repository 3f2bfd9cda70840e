"""Looks that follow one another: after the first two, what changes is read from the proxy's stream and not asked for.

That is one question in place of four for each frame, and the proxy makes what it tells once for all who watch. Whenever
the stream does not come, says what it should not or what cannot be drawn, or does not stop, the port is asked as for a
single look (view.py): what is wrong is told by that.
"""

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from proxy.terminal.deadline import Deadline
from proxy.terminal.port import ASK_WITHIN_S, Port, Unanswered, understood
from proxy.terminal.status import known
from proxy.terminal.view import View, after, look

# The stream tells a row a second. Who hears nothing for so long asks, and learns why.
SILENT_S = 3.0
# What was told between a look and the beginning of its stream was missed: after so long everything is asked for anew.
ANEW_S = 60.0
# A stream that was refused (an older proxy, too many readers) or broke is asked for again after so long.
AGAIN_S = 10.0
# Between looks further apart than this the stream would tell more than the looks ask for.
MOST_APART_S = 2.0
# A busy proxy tells some 30 KiB a second. What sends more has something else in mind, and reading it would take a core.
MAX_BYTES_A_SECOND = 1 << 18


class Following:
    """Looks at one proxy, `apart_s` seconds one after the other. `require` raises Unanswered of a view that is of no
    use to who looks."""

    def __init__(self, port: Port, apart_s: float, require: Callable[[View], None] = lambda _: None) -> None:
        self._port = port
        self._require = require
        self._wanted = apart_s <= MOST_APART_S
        self._looked = False
        self._reader: _Reader | None = None
        self._not_before_s = 0.0

    def look(self) -> View:
        """What there is to see now. Raises Unanswered."""
        if (view := self._followed()) is not None:
            return view
        view = look(self._port)
        self._require(view)
        now_s = time.monotonic()
        if self._looked and self._wanted and now_s >= self._not_before_s:
            self.close()
            self._reader, self._not_before_s = _Reader(self._port, view), now_s + AGAIN_S
        self._looked = True  # a single look needs no stream
        return view

    def _followed(self) -> View | None:
        """What the stream has made of the latest view; None where it is not read, or of no use."""
        if self._reader is None or not self._reader.fresh:
            return None
        view = self._reader.view
        try:
            self._require(view)
        except Unanswered:
            self.close()
            return None
        return view

    def close(self) -> None:
        """Read no stream any more."""
        if self._reader is not None:
            self._reader.end()
        self._reader = None


class _Reader:
    """Reads one stream in a thread of its own; `view` is the one that it began with, as it is by now."""

    def __init__(self, port: Port, view: View) -> None:
        self.view = view
        self._port = port
        self._begun_at_s = time.monotonic()
        self._heard_at_s: float | None = None
        self._deadline = Deadline(ASK_WITHIN_S)
        threading.Thread(target=self._read, name="stream", daemon=True).start()

    @property
    def fresh(self) -> bool:
        """Whether its view is that of the last seconds."""
        now_s, heard_at_s = time.monotonic(), self._heard_at_s
        return heard_at_s is not None and now_s - heard_at_s < SILENT_S and now_s - self._begun_at_s < ANEW_S

    def end(self) -> None:
        self._deadline.end()

    def _read(self) -> None:
        with contextlib.suppress(Unanswered), understood(self._port.url):
            for name, told in _events(_bounded(self._port.lines("/stream", self._deadline))):
                self.view = after(self.view, name, known(self._port, told) if name == "state" else told)
                if name == "sample":
                    self._heard_at_s = time.monotonic()
        self._heard_at_s = None


def _bounded(lines: Iterable[str]) -> Iterator[str]:
    """The lines as they come. Raises ValueError once they are more than a proxy tells."""
    size, since_s = 0, time.monotonic()
    for line in lines:
        size += len(line)
        if size > MAX_BYTES_A_SECOND:
            now_s = time.monotonic()
            if now_s - since_s < 1.0:
                raise ValueError("more than a proxy tells")
            size, since_s = 0, now_s
        yield line


def _events(lines: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """Server-sent events as the proxy writes them: a line of name, a line of data."""
    name = ""
    for line in lines:
        word, _, rest = line.rstrip("\r\n").partition(": ")
        if word == "event":
            name = rest
        elif word == "data":
            yield name, json.loads(rest)

"""Holds back the bytes of an unfinished event, so that a stream that breaks can end where an event ends.

Not here: reading events (sse.py). Every byte passes unchanged and in order; only its time may change.
"""

import re

from proxy.model import Dialect

HOLD_MAX_BYTES = 64 * 1024
"""At most this much of one event is held. An event is some hundred bytes; one longer than this passes as it comes, and
if the stream breaks inside it, it breaks inside an event. Higher would delay and collect what an engine sends without
line ends; lower would let ordinary long events (log probabilities, tool arguments) pass unguarded."""

_EMPTY_LINE = re.compile(
    rb"(?:\r\n|\r(?!\n)|\n)(?=(\r\n|\r|\n))"
)  # a line end followed by one; the group ends the event
# The end of a line behind which no comment comes. A pattern of all the comments at once would keep a note of each.
_LAST_COMMENT = re.compile(rb"(?:\n|\r(?!\n))(?!:)")
_LONGEST_MARK = 4  # CR LF CR LF: a boundary may begin this many bytes before what has just come, less one


class EventHold:
    """One stream's held bytes. `overflowed` says that the event under way was too long and passes unheld: what has
    been passed on does then not end at a boundary."""

    __slots__ = ("_end", "_held", "_mode", "overflowed")

    def __init__(self, dialect: Dialect) -> None:
        self._mode = dialect
        # What a piece ends with that needs no holding: every piece of an answer without events.
        self._end = b"" if dialect is Dialect.PLAIN else b"\n" if dialect is Dialect.OLLAMA else b"\n\n"
        self._held = bytearray()  # while overflowed: the last bytes passed on, kept to see a boundary across pieces
        self.overflowed = False

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes; returns what may be passed on: all up to the end of the last whole event."""
        if not self._held and data.endswith(self._end):
            return data
        return self._pass_overflowed(data) if self.overflowed else self._pass_held(data)

    def rest(self) -> bytes:
        """The bytes that are held now: the beginning of an event whose end has not come."""
        return b"" if self.overflowed else bytes(self._held)

    def _pass_held(self, data: bytes) -> bytes:
        held = self._held
        seen = len(held)
        held += data
        end = self._boundary(held, max(0, seen - _LONGEST_MARK + 1), fresh=seen == 0)
        passed = bytes(held[:end])
        del held[:end]
        if len(held) > HOLD_MAX_BYTES:
            self.overflowed = True
            passed += held
            self._held = held[1 - _LONGEST_MARK :]
        return passed

    def _pass_overflowed(self, data: bytes) -> bytes:
        """Inside an event that is too long: all passes, until its end is seen and holding begins anew behind it."""
        seen = len(self._held)
        recent = self._held + data
        end = self._boundary(recent, 0, fresh=False)
        if end <= seen:
            self._held = recent[1 - _LONGEST_MARK :]
            return data
        self.overflowed = False
        self._held = recent[end:]
        passed = bytes(recent[seen:end])
        if len(self._held) > HOLD_MAX_BYTES:
            return passed + self._pass_held(b"")
        return passed

    def _boundary(self, recent: bytearray, start: int, *, fresh: bool) -> int:
        """Where the last whole event in `recent` ends, looking from `start`; 0 where none does.

        `fresh` says that `recent` begins a line, so that a line end right there is an empty line.
        """
        if self._mode is Dialect.OLLAMA:
            return recent.rfind(b"\n", start) + 1
        if b"\r" in recent:
            end = max((mark.end(1) for mark in _EMPTY_LINE.finditer(recent, start)), default=0)
        else:
            end = recent.rfind(b"\n\n", start)
            end = end + 2 if end >= 0 else 0
        if not end and fresh and recent.startswith((b"\n", b"\r")):
            end = 2 if recent.startswith(b"\r\n") else 1
        return end if self.overflowed and not end else _after_comments(recent, end)


def _after_comments(recent: bytearray, end: int) -> int:
    """Past whole comment lines that follow a boundary: they belong to no event, and waiting would defeat them."""
    if not recent.startswith(b":", end):
        return end
    if last := _LAST_COMMENT.search(recent, end):
        return last.end()
    return max(end, recent.rfind(b"\n", end) + 1, recent.rfind(b"\r", end) + 1)

"""Looks at a stream from the side, in whatever pieces it comes: content, usage, finish, error, end.

It never makes a stream fail: what cannot be read is passed over, and what is too long is not collected. Not here: the
meaning of an event (answers.py) and holding bytes back to an event's end (hold.py). Both are exported from here too.
"""

from typing import Any

import orjson

from proxy.model import Dialect, Usage
from proxy.protocol.answers import EventFacts, StreamError, add, read_answer, read_event
from proxy.protocol.hold import HOLD_MAX_BYTES, EventHold
from proxy.protocol.quiet import telling_search

__all__ = ["HOLD_MAX_BYTES", "MAX_LINE_BYTES", "EventHold", "Scanner", "StreamError", "read_answer"]

MAX_LINE_BYTES = 1024 * 1024
"""A longer line, or event of several lines, is not read: an event is some hundred bytes, and an engine that sends no
line end must not fill the memory. Lower would miss long tool arguments sent at once."""

_BOM = b"\xef\xbb\xbf"
_DONE = b"[DONE]"


class Scanner:
    """Reads one stream. All fields are facts so far and only ever grow.

    `first_content`: something generated has come (a role alone is not); `finished`: a finish reason was given, or the
    stream has ended; `ended`: its dialect's end has come; `aborted`: the engine gave up (finish reason "abort");
    `error`: the first error event; `made`: the id of a response that the engine may store; `events`: events with data,
    comments not counted; `gave_up`: a line was too long to be read, so `ended` and `finished` may be missing.
    """

    __slots__ = (
        "_after_cr",
        "_dialect",
        "_error_named",
        "_line",
        "_ndjson",
        "_open",
        "_payload",
        "_skipping",
        "_telling",
        "_unread",
        "aborted",
        "ended",
        "error",
        "events",
        "finished",
        "first_content",
        "gave_up",
        "made",
        "usage",
    )

    def __init__(self, dialect: Dialect) -> None:
        self.first_content = False
        self.finished = False
        self.ended = False
        self.aborted = False
        self.gave_up = False
        self.events = 0
        self.usage = Usage()
        self.error: StreamError | None = None
        self.made: str | None = None
        self._dialect = dialect
        self._telling = telling_search(dialect)
        self._ndjson = dialect is Dialect.OLLAMA
        self._line = bytearray()  # the beginning of a line whose end has not come
        self._skipping = False  # inside a line that is too long
        self._after_cr = False  # the last byte was a CR: an LF now belongs to it
        self._open = False  # inside an event: a line of it has come
        self._payload: bytes | None = None  # its data so far
        self._unread = False  # its data is too long to be read
        self._error_named = False  # it is called "error"

    @property
    def at_boundary(self) -> bool:
        """Whether no event is under way: what comes next begins a new one."""
        return not (self._open or self._skipping or self._line)

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream, cut anywhere. Never raises."""
        if not self.first_content or self._line or self._open or self._skipping:
            events = 0
        # One event in one line, as nearly every piece is; `find` of one byte is several times as quick as `in`.
        elif (
            data.startswith(b"data:")
            and data.endswith(b"}\n\n")
            and data.find(b"\n") == len(data) - 2
            and data.find(b"\r") < 0
        ):
            events = 1
        else:
            events = self._count_plain(data)
        if events and self._telling(data) is None:
            self._after_cr = False
            self.events += events
        elif data:
            self._scan(data)

    def close(self) -> None:
        """The stream is over: read what it left without the line ends that an event should have."""
        if self._line:
            line, self._line = bytes(self._line), bytearray()
            self._end_line(line)
        if self._open:
            self._end_event()

    def _count_plain(self, data: bytes) -> int:
        """How many events `data` is, where it is nothing but whole events of one line each; 0 where it is not."""
        ends = data.count(b"\n")
        if self._ndjson:
            plain = data.endswith(b"\n") and data.count(b"}\n") == ends and data.find(b"\r") < 0
            return ends if plain else 0
        if not (data.startswith(b"data:") and data.endswith(b"}\n\n")) or data.find(b"\r") >= 0:
            return 0
        # Where one line after another ends with two line ends, and these are all there are, each line is an event.
        return ends // 2 if ends == 2 * (data.count(b"}\n\ndata:") + 1) else 0

    # ------------------------------------------------------------ lines

    def _scan(self, data: bytes) -> None:
        """Split into lines that end in LF, CR or CRLF, and keep the beginning of the one that has not ended."""
        if self._after_cr and data.startswith(b"\n"):
            data = data[1:]
            self._after_cr = False
            if not data:
                return
        self._after_cr = data.endswith(b"\r")
        lines = data.splitlines()
        tail = b"" if data.endswith((b"\n", b"\r")) else lines.pop()
        for line in lines:
            self._end_line(self._whole(line))
        if tail:
            self._keep(tail)

    def _whole(self, rest: bytes) -> bytes | None:
        """A line from its kept beginning and its rest; None where it was too long to be kept."""
        if not (self._line or self._skipping or len(rest) > MAX_LINE_BYTES):
            return rest
        self._keep(rest)
        line = None if self._skipping else bytes(self._line)
        self._line.clear()
        self._skipping = False
        return line

    def _keep(self, part: bytes) -> None:
        if self._skipping:
            return
        if len(self._line) + len(part) > MAX_LINE_BYTES:
            self._give_up(comment=(self._line or part).startswith(b":"))
            self._line.clear()
            self._skipping = True
            return
        self._line += part

    def _give_up(self, *, comment: bool = False) -> None:
        self.gave_up = True
        if not comment:
            self._unread = self._open = True

    def _end_line(self, line: bytes | None) -> None:
        if self._ndjson:
            self._open = self._unread = False
            if line is None or line.strip():
                self.events += 1
                self._read(line or b"")
        elif line is None:
            return
        elif line:
            self._take_field(line)
        elif self._open:
            self._end_event()

    # ------------------------------------------------------------ events

    def _take_field(self, line: bytes) -> None:
        """One line of an event: `data` is kept, `event` looked at, a comment passed over."""
        if not self.events and line.startswith(_BOM):
            line = line[len(_BOM) :]
        if line.startswith(b":"):
            return
        self._open = True
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._take_data(value)
        elif name == b"event":
            self._error_named = value == b"error"

    def _take_data(self, value: bytes) -> None:
        if value.strip() == _DONE:
            self.ended = self.finished = True
        if self._payload is None:
            self._payload = value
        elif len(self._payload) + len(value) < MAX_LINE_BYTES:
            self._payload += b"\n" + value
        else:
            self._give_up()

    def _end_event(self) -> None:
        payload, unread, named = self._payload, self._unread, self._error_named
        self._payload = None
        self._open = self._unread = self._error_named = False
        if unread:
            self.events += 1
        elif payload:
            self.events += 1
            self._read(payload)
        if named and self.error is None and (unread or payload):
            self.error = StreamError()

    def _read(self, payload: bytes) -> None:
        if payload.startswith(_DONE) or (self.first_content and self._telling(payload) is None):
            return
        try:
            value: Any = orjson.loads(payload)
        except ValueError:
            return
        if isinstance(value, dict):
            self._learn(read_event(value, self._dialect))

    def _learn(self, facts: EventFacts) -> None:
        self.first_content = self.first_content or facts.content
        self.ended = self.ended or facts.ended
        self.finished = self.finished or facts.ended or facts.finish is not None
        self.aborted = self.aborted or facts.finish == "abort"
        self.error = self.error or facts.error
        self.made = self.made or facts.made
        self._count(facts)

    def _count(self, facts: EventFacts) -> None:
        """The latest counts hold, except on the native route, where each prompt's last event has its own."""
        new, old = facts.usage, self.usage
        if self._dialect is Dialect.GENERATE:
            if facts.finish is not None:
                self.usage = add(old, new)
            return
        self.usage = Usage(
            new.prompt_tokens or old.prompt_tokens,
            new.completion_tokens or old.completion_tokens,
            new.cached_tokens or old.cached_tokens,
        )

"""The common event of a stream, from the engine's socket to the client's in one step.

It is one read that is one whole chunk, holds whole events and tells nothing that matters before the end. It costs one
Python call: a hundred microseconds of other work lie between two events, so what counts is how little code and memory
each of them needs. All else (cut chunks, several at once, errors, the end) goes the long way, through connection.py and
passage.py, which open this one and close it again.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from proxy.wire.client import Client
from proxy.wire.connection import Connection

# The sizes that are written in two and in three hexadecimal digits: nearly every event has one of them, and the long
# way takes the rest.
TWO_DIGITS, THREE_DIGITS = range(0x10, 0x100), range(0x100, 0x1000)
# A size line's end, and the line end behind a chunk.
FRAME_BYTES = len(b"\r\n") + len(b"\r\n")
# What ends an event, and what every error in one holds (in a text its quotation marks would be escaped).
EVENT_END = b"\n\n"
ERROR_KEY = b'"error"'
# While one sequence streams, nothing but its end tells anything: of the events before only the last few are read, once
# the stream is over. They are finish, counts and end mark, and room for pings among them.
UNREAD_PIECES = 8
# A stream says that its backend lives so often at most.
LIVES_EVERY_S = 0.1


class Express(asyncio.Protocol):
    """Stands before a connection while a stream flows and is between two chunks and two events. `unread` are the last
    payloads that passed, `at_s` is when the newest one did; `lives` is called when the backend has sent something, now
    and then. With the first read of any other kind it steps aside; `behind` is the connection until then."""

    __slots__ = ("_client", "_clock", "_lives", "_lives_at_s", "at_s", "behind", "unread")

    def __init__(self, client: Client, *, clock: Callable[[], float], lives: Callable[[], None]) -> None:
        self.behind: Connection | None = None
        self._client = client
        self._clock = clock
        self._lives = lives
        self._lives_at_s = float("-inf")
        self.at_s = clock()
        self.unread: deque[bytes] = deque(maxlen=UNREAD_PIECES)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        size, begin = len(data) - FRAME_BYTES - 2, 4
        if size not in TWO_DIGITS:
            size, begin = size - 1, 5
        # The line says just this size, in just these digits: nothing is parsed, and nothing else is believed.
        if (
            data.startswith(b"%x\r\n" % size)
            and data.endswith(b"\n\n\r\n")
            and ERROR_KEY not in data
            and (begin == 4 or size in THREE_DIGITS)
        ):
            transport = self._client.transport
            if transport is not None:
                transport.write(data)
            self.unread.append(data[begin:-2])
            at_s = self.at_s = self._clock()
            if at_s >= self._lives_at_s:
                self._lives_at_s = at_s + LIVES_EVERY_S
                self._lives()
        else:
            self._step_aside().data_received(data)

    def eof_received(self) -> None:
        """See asyncio.Protocol."""
        self._step_aside().eof_received()

    def connection_lost(self, error: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._step_aside().connection_lost(error)

    def retire(self) -> None:
        """Let go of all but what has passed."""
        self._lives = _nothing

    def _step_aside(self) -> Connection:
        connection = self.behind
        assert connection is not None
        connection.undivert()
        return connection


def _nothing() -> None:
    """In place of a callback that would keep whoever keeps this."""

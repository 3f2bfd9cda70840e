"""The common event of a stream, from the engine's socket to the client's in one step.

It is one read that is one whole chunk with one whole event in one line that tells neither finish nor counts nor error:
what a scanner would pass over. It costs one Python call: a hundred microseconds of other work lie between two events,
so what counts is how little code and memory each of them needs. All else (cut chunks, several at once, pings, the end)
goes the long way, through connection.py and passage.py, which open this one and close it again.
"""

import asyncio
from collections.abc import Callable

from proxy.model import Dialect
from proxy.protocol.chunks import SIZE_LINES
from proxy.protocol.quiet import telling_search
from proxy.wire.client import Client
from proxy.wire.connection import Connection

# A stream says that its backend lives so often at most.
LIVES_EVERY_S = 0.1


class Express(asyncio.Protocol):
    """Stands before a connection while a stream's content flows and is between two chunks and two events. `at_s` is
    when the newest event passed; `lives` is called when the backend has sent something, now and then. With the first
    read of any other kind it steps aside; `behind` is the connection until then."""

    __slots__ = ("_client", "_clock", "_lives", "_lives_at_s", "_telling", "at_s", "behind")

    def __init__(
        self, client: Client, dialect: Dialect, *, clock: Callable[[], float], lives: Callable[[], None]
    ) -> None:
        self.behind: Connection | None = None
        self._client = client
        self._telling = telling_search(dialect)
        self._clock = clock
        self._lives = lives
        self._lives_at_s = float("-inf")
        self.at_s = clock()

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        size = len(data)
        line = SIZE_LINES[size]
        # One line end of the event's own, and then the empty one and the chunk's.
        if (
            data.startswith(line)
            and data.startswith(b"data:", len(line))
            and data.endswith(b"}\n\n\r\n")
            and data.find(b"\n", len(line)) == size - 4
            and data.find(b"\r", len(line)) == size - 2
            and self._telling(data) is None
        ):
            transport = self._client.transport
            if transport is not None:
                transport.write(data)
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

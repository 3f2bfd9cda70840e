"""Connections without sockets: a transport in memory, and an engine behind the client that the proxy sends with.

Everything of the proxy above a transport is the real thing. Not here: what is sent over it (front.py,
backend.py).
"""

import asyncio
from collections import deque
from collections.abc import Callable

from fuzz.draws import require
from fuzz.http_reader import Request, read_requests

from proxy.wire.calls import Upstream
from proxy.wire.connection import Connection

PEER = ("127.0.0.9", 1234)
# Within every limit of the proxy, and long enough that everybody has a turn.
TAKEN_WITHIN_S = 1e-3


class Pipe(asyncio.Transport):
    """One side's end of a connection. What the protocol writes is kept in `written` and told to `on_write`. The other
    side of a `slow` one takes a moment over each write, and the protocol is told that there is no room for as long.
    """

    def __init__(
        self, protocol: asyncio.Protocol, on_write: Callable[["Pipe"], None] = lambda _: None, *, slow: bool = False
    ) -> None:
        super().__init__({"peername": PEER, "sockname": ("127.0.0.1", 1)})
        self.protocol = protocol
        self.written = bytearray()
        self.closed = False
        self.shut = False
        self._on_write = on_write
        self._slow = slow
        self._full = False
        self._paused = False
        self._held: deque[bytes | None] = deque()  # what comes while nobody reads, None for the end
        self._loop = asyncio.get_running_loop()

    @property
    def ended(self) -> bool:
        """Whether nothing more is written."""
        return self.closed or self.shut

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self.closed:
            return
        require(not self.shut, f"written behind the end: {bytes(data)!r}")
        self.written += data
        self._on_write(self)
        if self._slow and not self._full:
            self._full = True
            self.protocol.pause_writing()
            self._loop.call_later(TAKEN_WITHIN_S, self._drained)

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._loop.call_soon(self._lost)

    def abort(self) -> None:
        self.close()

    def end(self) -> None:
        """The other side has ended the connection."""
        if self._paused or self._held:
            self._held.append(None)
        else:
            self._deliver(None)

    def give(self, data: bytes) -> None:
        """Bytes come from the other side."""
        if self._paused or self._held:
            self._held.append(data)
        else:
            self._deliver(data)

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        self._loop.call_soon(self._read_on)

    def is_reading(self) -> bool:
        return not (self.closed or self._paused)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """It is full after each write, or never."""

    def get_write_buffer_size(self) -> int:
        return int(self._full)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.shut = True

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self.protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol)
        self.protocol = protocol

    def _lost(self) -> None:
        self.protocol.connection_lost(None)
        del self.protocol  # as every real transport does

    def _drained(self) -> None:
        self._full = False
        if not self.closed:
            self.protocol.resume_writing()

    def _read_on(self) -> None:
        while self._held and not self._paused:
            self._deliver(self._held.popleft())

    def _deliver(self, data: bytes | None) -> None:
        if self.closed:
            return
        if data is None:
            self.protocol.eof_received()
            self.close()
        elif data:
            self.protocol.data_received(data)


Reply = Callable[[Request, Pipe], None]


class Engine:
    """What stands behind the proxy's client: it reads strictly, keeps every request, and answers as it is told."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.broken: list[bytes] = []
        self.pipes: list[Pipe] = []
        self.reply: Reply = lambda _request, _pipe: None

    def serve(self, upstream: Upstream) -> None:
        """Make an upstream's new connections lead here."""

        async def connected(loop: asyncio.AbstractEventLoop, *, keeps: bool) -> Connection:
            connection = Connection(loop, upstream, keeps=keeps)
            pipe = Pipe(connection, self._came)
            self.pipes.append(pipe)
            connection.connection_made(pipe)
            upstream._open.add(connection)
            return connection

        upstream._connect = connected  # type: ignore[method-assign]

    def forget(self) -> None:
        """End all connections, and begin anew."""
        for pipe in self.pipes:
            pipe.abort()
        self.requests, self.broken, self.pipes = [], [], []

    def _came(self, pipe: Pipe) -> None:
        found, rest = read_requests(bytes(pipe.written))
        if rest == "malformed" or len(found) > 1:
            self.broken.append(bytes(pipe.written))
            pipe.end()
        elif found:
            pipe.written.clear()
            self.requests.append(found[0])
            asyncio.get_running_loop().call_soon(self.reply, found[0], pipe)

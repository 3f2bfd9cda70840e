"""One request of a client: its head as it came, and its body while it comes.

Finding requests in bytes is in reader.py, limits of bodies are in body.py, answers in downstream.py.
"""

import asyncio
from typing import TYPE_CHECKING

from proxy.protocol.fields import Fields, text

if TYPE_CHECKING:
    from proxy.wire.client import Client

# What of a body may wait to be taken before its connection is read no further: two reads of a socket.
MAX_WAITING_BYTES = 131072


class Incoming:
    """The body of one request as it comes. `length` is what Content-Length says, `ended` that all of it has come;
    `raw_bytes` is what it took on the wire while nobody answered it. `waits`: its client asks for a word first."""

    __slots__ = (
        *("_client", "_error", "_pieces", "_waiter", "_waiting_bytes", "_waits"),
        *("ended", "expected", "length", "raw_bytes"),
    )

    def __init__(
        self, client: "Client | None", *, expected: bool, length: int | None = None, waits: bool = False
    ) -> None:
        self._waits = waits
        self.expected = expected
        self.length = length
        self.ended = not expected
        self.raw_bytes = 0
        self._client = client
        self._pieces: list[bytes] = []
        self._waiting_bytes = 0
        self._waiter: asyncio.Future[None] | None = None
        self._error: Exception | None = None

    @property
    def declared(self) -> bool:
        """Whether the head says that there is a body, be it one of no bytes: without a word some servers refuse."""
        return self.expected or self.length is not None

    def take(self) -> bytes:
        """What has come and was not taken; never waits."""
        pieces = self._pieces
        if not pieces:
            return b""
        if self._waiting_bytes > MAX_WAITING_BYTES and self._client is not None:
            self._client.resume()
        self._pieces, self._waiting_bytes = [], 0
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def more(self) -> bytes:
        """What comes next, b"" at the end. A client that waits to be asked for its body is asked now.

        Raises InvalidRequest when the framing breaks, ConnectionError when the client is gone.
        """
        if self._waits:
            self._waits = False
            if self._client is not None and not self.ended and not self._pieces:
                self._client.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        while not self._pieces and not self.ended and self._error is None:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        if self._error is not None:
            raise self._error
        return self.take()

    def feed(self, data: bytes) -> None:
        """A piece has come."""
        self._pieces.append(data)
        self._waiting_bytes += len(data)
        # Each time anew: the end of an answer before makes the client read on, whoever else still waits.
        if self._waiting_bytes > MAX_WAITING_BYTES and self._client is not None:
            self._client.pause()
        if self._waiter is not None:
            self._wake()

    def end(self) -> None:
        """All has come."""
        self.ended = True
        if self._waiter is not None:
            self._wake()

    def broke(self, error: Exception) -> None:
        """No more will come, and what has come is not whole: whoever reads is told at once."""
        if not self.ended:
            self._error = error
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Request:
    """One request whose head has come. `target` is as received; `peer` the client's address, "" where unknown;
    `keeps` says that the client may use its connection again."""

    __slots__ = ("by_name", "client", "fields", "http10", "incoming", "keeps", "method", "peer", "target")

    def __init__(
        self,
        method: str,
        target: str,
        fields: Fields,
        by_name: dict[bytes, bytes],
        *,
        incoming: Incoming,
        client: "Client",
        http10: bool,
        keeps: bool,
        peer: str,
    ) -> None:
        self.method = method
        self.target = target
        self.http10 = http10
        self.fields = fields
        self.by_name = by_name
        self.peer = peer
        self.incoming = incoming
        self.client = client
        self.keeps = keeps

    @property
    def task(self) -> "asyncio.Task[None]":
        """The task that answers it."""
        task = self.client.task
        assert task is not None
        return task

    def text(self, name: bytes, default: str = "") -> str:
        """The values of a header (its name in lower case) as text, `default` where it did not come."""
        value = self.by_name.get(name)
        return default if value is None else text(value)


def upgrades(request: Request) -> bool:
    """Whether a request is of no use without its upgrade. The offer of HTTP/2, which Java's own client makes with every
    first request, may be passed over (RFC 9110, section 7.8)."""
    wanted = request.by_name.get(b"upgrade")
    if wanted is None or b"upgrade" not in request.by_name.get(b"connection", b"").lower():
        return False
    return wanted.strip().lower() not in (b"", b"h2c")

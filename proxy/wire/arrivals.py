"""Connections beyond the limit: told so, or closed, and never left to take memory from those that are served.

Counting connections is the server's (front.py), TLS is in tls.py.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus

from proxy.closing import CloseReason
from proxy.errors import TooManyConnections
from proxy.model import Dialect
from proxy.protocol import dialects

# A client that was let down reads its answer within a round trip; a slow one has the time of three lost packets.
TURN_WITHIN_S = 2.0
# So many are told at a time at most. The rest of a flood is closed at once: each one told holds a descriptor.
MAX_TOLD = 256


@dataclass(frozen=True, slots=True)
class ConnectionRules:
    """Limits of client connections and of the heads of requests; durations in seconds."""

    max_connections: int = 10000
    head_timeout_s: float = 30.0
    max_head_bytes: int = 65536
    max_headers: int = 128
    unread_s: float = 300.0
    max_told: int = MAX_TOLD


class Surplus:
    """The connections that are over the limit. `refused` and `closed` count how each of them ended."""

    def __init__(self, refused: Callable[[str], None], closed: Callable[[CloseReason], None]) -> None:
        self.refused = refused
        self.closed = closed
        self.told: set[_TurnedAway] = set()

    def turn_away(self, transport: asyncio.Transport, most: int) -> None:
        """Take a connection that has just been accepted over; `most` are told at a time."""
        if len(self.told) >= most:
            self.closed(CloseReason.OVER_LIMIT)
            transport.abort()
            return
        turned = _TurnedAway(self, transport)
        self.told.add(turned)
        transport.set_protocol(turned)

    def abort(self) -> None:
        """Close all of them now."""
        for turned in tuple(self.told):
            turned.transport.abort()


class _TurnedAway(asyncio.Protocol):
    """Answers at the first bytes: some clients call an answer that comes before their request a broken one."""

    def __init__(self, surplus: Surplus, transport: asyncio.Transport) -> None:
        self.transport = transport
        self._surplus = surplus
        self._answered = False
        self._timer = asyncio.get_running_loop().call_later(TURN_WITHIN_S, transport.abort)

    def data_received(self, _: bytes) -> None:
        if self._answered:
            return
        self._answered = True
        self._surplus.refused(TooManyConnections.code)
        self.transport.write(_answer())
        # Closed outright, what the client still sends would make the kernel take the answer back.
        if self.transport.can_write_eof():
            self.transport.write_eof()
        else:
            self.transport.close()

    def connection_lost(self, _: BaseException | None) -> None:
        self._timer.cancel()
        self._surplus.told.discard(self)
        if not self._answered:
            self._surplus.closed(CloseReason.OVER_LIMIT)


def _answer() -> bytes:
    allowed = "listen.max_connections, or the limit of open files, allows"
    error = TooManyConnections(f"as many connections are open as {allowed}; try again")
    body = dialects.error_body(error, Dialect.PLAIN)
    lines = (
        f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}",
        "Content-Type: application/json; charset=utf-8",
        f"Content-Length: {len(body)}",
        f"Retry-After: {error.retry_after_s:.0f}",
        "Server: crossover",
        "Connection: close",
        "",
        "",
    )
    return "\r\n".join(lines).encode() + body

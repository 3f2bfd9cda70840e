"""One handler behind the server of the clients' port, with nothing else of the proxy around it."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from proxy.closing import CloseReason
from proxy.front import FrontServer
from proxy.protocol.fields import Fields
from proxy.wire.arrivals import ConnectionRules
from proxy.wire.downstream import Reply
from proxy.wire.request import Request
from proxy.wire.tls import TlsPort

Handler = Callable[[Request], Awaitable[Reply | None]]


@dataclass
class Book:
    """What was counted and logged, in the place of metrics and log."""

    closings: list[CloseReason] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    lines: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)

    def closed(self, reason: CloseReason) -> None:
        self.closings.append(reason)

    def refused(self, code: str) -> None:
        self.refusals.append(code)

    def info(self, event: str, **said: Any) -> None:
        self.lines.append(("info", event, said))

    def error(self, event: str, **said: Any) -> None:
        self.lines.append(("error", event, said))


class FakeDoor:
    """A handler, and a gate that leaves every head as it is unless it is given `stamps`."""

    def __init__(self, handler: Handler, stamps: Fields) -> None:
        self.handler = handler
        self.gate = self
        self.stamps = stamps
        self.origins = (b"*",) if stamps else ()

    def __call__(self, request: Request) -> Awaitable[Reply | None]:
        return self.handler(request)

    def stamp(self, _: Request, fields: Fields) -> Fields:
        return fields + self.stamps


@dataclass
class Served:
    """A running server."""

    front: FrontServer
    book: Book
    port: int = 0


def front_of(
    handler: Handler, *, keepalive_s: float = 75.0, stamps: Fields | None = None, **rules: Any
) -> tuple[FrontServer, Book]:
    """A server that is not listening, and its book."""
    book: Any = Book()
    door = FakeDoor(handler, stamps or [])
    return FrontServer(door, book, book, ConnectionRules(**rules), keepalive_s=keepalive_s), book


@contextlib.asynccontextmanager
async def served(handler: Handler, *, tls: TlsPort | None = None, **more: Any) -> AsyncIterator[Served]:
    """`handler` behind a port. At the end no connection is left."""
    front, book = front_of(handler, **more)
    port = await front.listen("127.0.0.1", 0, backlog=100, tls=tls)
    try:
        yield Served(front, book, port)
    finally:
        await front.close(5.0)
        assert not front.connections
        if tls is not None:
            await tls.stop()


@contextlib.asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[int]:
    """The port at which `handler` answers."""
    async with served(handler) as server:
        yield server.port

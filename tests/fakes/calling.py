"""Calls to one fake engine through the product's own upstream, without the rest of the proxy."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from fakes.engine import Exchange, FakeEngine, Script, plain
from fakes.until import turns

from proxy.errors import UpstreamError
from proxy.wire.answer import Answer
from proxy.wire.calls import Upstream
from proxy.wire.connection import Call


def call(target: str = "/v1/chat/completions", body: bytes = b"{}", method: str = "POST") -> Call:
    length = f"content-length: {len(body)}\r\n" if body else ""
    return Call(method, f"{method} {target} HTTP/1.1\r\nhost: engine.example\r\n{length}\r\n".encode(), body)


@asynccontextmanager
async def reached(script: Script = plain, *, connect_s: float = 5.0) -> AsyncIterator[tuple[FakeEngine, Upstream]]:
    async with FakeEngine(script=script) as engine:
        upstream = Upstream(engine.url, connect_s=connect_s)
        try:
            yield engine, upstream
        finally:
            await upstream.close()


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def raw_server(serve: Serve) -> AsyncIterator[Upstream]:
    """An upstream to a server that does not even read requests unless it is told to; connections end with this."""
    writers: list[asyncio.StreamWriter] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await serve(reader, writer)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    upstream = Upstream(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", connect_s=5)
    try:
        yield upstream
    finally:
        await upstream.close()
        server.close()
        for writer in writers:
            writer.transport.abort()
        await turns()


async def read(answer: Answer) -> bytes:
    """All of an answer."""
    pieces: list[bytes] = []
    try:
        while data := await answer.read():
            pieces.append(data)
    finally:
        answer.close()
    return b"".join(pieces)


class Peers:
    """Runs scripts in their order, the last one for ever; `seen` are the engine's own numbers of the connections."""

    def __init__(self, *scripts: Script) -> None:
        self.scripts = list(scripts)
        self.seen: list[object] = []

    async def __call__(self, exchange: Exchange) -> None:
        self.seen.append(exchange.writer.get_extra_info("peername"))
        script = self.scripts.pop(0) if len(self.scripts) > 1 else self.scripts[0]
        await script(exchange)


def says(*data: bytes) -> Script:
    """A script that says these very bytes, each in a write of its own."""

    async def say(exchange: Exchange) -> None:
        for each in data:
            await exchange.send(each)

    return say


class Told:
    """A sink that notes what it is told."""

    def __init__(self, answer: Answer | None = None) -> None:
        self.framed: list[bytes] = []
        self.payload = bytearray()
        self.whole = False
        self.error: UpstreamError | None = None
        self.closes: Answer | None = answer

    @property
    def over(self) -> bool:
        return self.whole or self.error is not None

    def came(self, framed: bytes, payload: bytes) -> None:
        self.framed.append(framed)
        self.payload += payload
        if self.closes is not None:
            self.closes.close()

    def ended(self) -> None:
        assert not self.over
        self.whole = True

    def broke(self, error: UpstreamError) -> None:
        assert not self.over
        self.error = error

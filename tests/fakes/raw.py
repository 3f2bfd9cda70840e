"""A client that writes and reads raw bytes: what goes over the wire is exactly what a test says, and can be cut."""

import asyncio
from dataclasses import dataclass

import orjson

# A loopback answer takes milliseconds, and seconds of a machine that is busy with others; what takes longer hangs.
WITHIN_S = 30.0


@dataclass
class Said:
    """One answer as it came. `whole` is false when the connection ended before the answer did."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes
    whole: bool

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    @property
    def json(self) -> dict[str, object]:
        value: dict[str, object] = orjson.loads(self.body)
        return value


class RawClient:
    """One connection. Used as `async with RawClient(port) as client`."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self.port, self.host = port, host

    async def __aenter__(self) -> "RawClient":
        self.reader, self.writer = await asyncio.open_connection(self.host, self.port, limit=1 << 24)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.leave()

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def leave(self, *, reset: bool = False) -> None:
        """Close the connection, by FIN or by RST."""
        if reset:
            self.writer.transport.abort()
        else:
            self.writer.close()

    async def head(self) -> Said:
        """The head of the next answer."""
        async with asyncio.timeout(WITHIN_S):
            lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines[1:] if line)]
        return Said(int(lines[0].split(" ")[1]), headers, b"", whole=False)

    async def chunk(self) -> bytes | None:
        """The next chunk, b"" for the last one, None when the connection ended instead."""
        async with asyncio.timeout(WITHIN_S):
            try:
                size = int((await self.reader.readline()).split(b";")[0] or b"-1", 16)
                if size < 0:
                    return None
                return (await self.reader.readexactly(size + 2))[:-2]
            except (asyncio.IncompleteReadError, ConnectionError):
                return None

    async def answer(self, *, bodiless: bool = False) -> Said:
        """The next answer whole, or as much of it as came."""
        said = await self.head()
        length = said.header("content-length")
        if bodiless or said.status in (204, 304):
            said.whole = True
        elif said.header("transfer-encoding") == "chunked":
            while piece := await self.chunk():
                said.body += piece
            said.whole = piece == b""
        elif length is not None:
            said.body = await self._up_to(int(length))
            said.whole = len(said.body) == int(length)
        else:
            said.body, said.whole = await self.rest(), True
        return said

    async def rest(self) -> bytes:
        """Everything until the connection ends."""
        async with asyncio.timeout(WITHIN_S):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b""

    async def _up_to(self, size_bytes: int) -> bytes:
        async with asyncio.timeout(WITHIN_S):
            try:
                return await self.reader.readexactly(size_bytes)
            except asyncio.IncompleteReadError as error:
                return error.partial


def request(
    target: str = "/v1/chat/completions",
    body: bytes = b"",
    *lines: str,
    method: str = "POST",
    version: str = "1.1",
    host: str = "127.0.0.1",
) -> bytes:
    """One whole request; Content-Length comes by itself, other header lines as they stand."""
    length = [f"content-length: {len(body)}"] if body or method == "POST" else []
    return "\r\n".join((f"{method} {target} HTTP/{version}", f"host: {host}", *length, *lines, "", "")).encode() + body


async def ask(port: int, data: bytes, *, bodiless: bool = False) -> Said:
    """Send one request over a connection of its own and take the answer."""
    async with RawClient(port) as client:
        await client.send(data)
        return await client.answer(bodiless=bodiless)


def chat(*, stream: bool = False, **more: object) -> bytes:
    """A chat body."""
    return orjson.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": stream, **more})

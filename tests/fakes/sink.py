"""An engine that keeps nothing: it reads bodies away, and can answer with one line that does not end for very long."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

PIECE = b"x" * 65536


class Sink:
    """`answer` gets a body's size when it is read whole, and gives the body of the answer; without it each answer is
    `begin` and then `endless_bytes` without a line end. Other routes than the engine's own controls count alike."""

    def __init__(
        self,
        answer: Callable[[int], Awaitable[bytes]] | None,
        content_type: str = "application/json",
        begin: bytes = b"",
        endless_bytes: int = 0,
    ) -> None:
        self.url = ""
        self._answer = answer
        self._content_type = content_type
        self._begin = begin
        self._endless_bytes = endless_bytes

    async def __aenter__(self) -> "Sink":
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
                size_bytes = _length(head)
                for left in range(size_bytes, 0, -len(PIECE)):
                    await reader.readexactly(min(left, len(PIECE)))
                await self._write(writer, size_bytes if head.startswith("post") else None)
        writer.close()

    async def _write(self, writer: asyncio.StreamWriter, size_bytes: int | None) -> None:
        if size_bytes is None or self._answer is not None:
            body = b"{}" if size_bytes is None or self._answer is None else await self._answer(size_bytes)
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
            return await writer.drain()
        writer.write(f"HTTP/1.1 200 OK\r\ncontent-type: {self._content_type}\r\n".encode())
        writer.write(b"transfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n" % (len(self._begin), self._begin))
        for _ in range(self._endless_bytes // len(PIECE)):
            writer.write(b"%x\r\n" % len(PIECE))
            writer.write(PIECE)
            writer.write(b"\r\n")
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        return await writer.drain()


def _length(head: str) -> int:
    lines = (line.partition(":") for line in head.split("\r\n"))
    return next((int(value) for name, _, value in lines if name == "content-length"), 0)

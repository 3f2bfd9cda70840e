"""Scripts for a fake engine that sends one answer in the pieces, and with the framing, that a test names."""

import socket
from collections.abc import Iterable

from fakes.engine import Exchange, Script
from fakes.until import turns

SSE = "text/event-stream; charset=utf-8"
FRAMINGS = ("length", "chunked", "closing")


def sends(*pieces: bytes, content_type: str = SSE, lines: tuple[str, ...] = (), framing: str = "chunked") -> Script:
    """Each piece in a write of its own; `closing` has no framing but the end of the connection."""

    async def send(exchange: Exchange) -> None:
        await exchange.head("200 OK", *_head_lines(pieces, content_type, framing), *lines)
        for piece in pieces:
            await (exchange.chunk(piece) if framing == "chunked" else exchange.send(piece))
            await turns(1)
        await _end(exchange, framing)

    return send


def sends_bytewise(body: bytes, content_type: str = SSE, framing: str = "chunked") -> Script:
    """Every byte of the body in a segment of its own, its chunks' framing too."""

    async def send(exchange: Exchange) -> None:
        wire: socket.socket = exchange.writer.get_extra_info("socket")
        assert wire.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY), "the kernel would gather the bytes"
        await exchange.head("200 OK", *_head_lines((body,), content_type, framing))
        for at in range(len(body)):
            byte = body[at : at + 1]
            for one in b"1\r\n%b\r\n" % byte if framing == "chunked" else byte:
                exchange.writer.write(bytes((one,)))
                await turns(1)
        await _end(exchange, framing)

    return send


def _head_lines(pieces: Iterable[bytes], content_type: str, framing: str) -> list[str]:
    length = sum(len(piece) for piece in pieces)
    framed = {"length": [f"content-length: {length}"], "chunked": ["transfer-encoding: chunked"]}
    return [f"content-type: {content_type}", *framed.get(framing, ["connection: close"])]


async def _end(exchange: Exchange, framing: str) -> None:
    if framing == "chunked":
        await exchange.end()
    elif framing == "closing":
        exchange.writer.close()

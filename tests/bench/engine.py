"""The fake engine of the measurement: a process of its own that costs little, so that the proxy is what is measured.

It writes ready-made bytes (messages.py) from asyncio protocols on uvloop, each event by itself, as a decode step does;
it understands just enough HTTP for that. Usage: python -m bench.engine RATE EVENTS; it prints its two ports.
"""

import asyncio
import re
import sys
from typing import cast

import uvloop
from bench import messages

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
BACKLOG = 4096


class Exchange(asyncio.Protocol):
    """One connection. Streams have `events` events, one each `interval_s`."""

    def __init__(self, interval_s: float, events: int) -> None:
        self._interval_s = interval_s
        self._events = events
        self._loop = asyncio.get_running_loop()
        self._received = bytearray()
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = 0.0
        self._left = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are not of that class

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        self._received += data
        while self._received and self._take():
            pass

    def _take(self) -> bool:
        """Answer the first request that has come; false where none is whole."""
        received = self._received
        head_end = received.find(b"\r\n\r\n")
        if head_end < 0:
            return False
        length = _LENGTH.search(received, 0, head_end)
        end = head_end + 4 + (int(length[1]) if length else 0)
        if len(received) < end:
            return False
        self._answer(received, end)
        del received[:end]
        return True

    def _answer(self, received: bytearray, end: int) -> None:
        if not received.startswith(b"POST "):
            self._transport.write(_control(received))
        elif received.find(messages.STREAM_WORD, 0, end) >= 0:
            self._begin()
        else:
            self._transport.write(messages.PLAIN_ANSWER)

    def _begin(self) -> None:
        self._left = self._events - messages.FRAME_EVENTS
        self._transport.write(messages.STREAM_BEGIN)
        self._due_s = self._loop.time()
        self._wait()

    def _wait(self) -> None:
        # By instants and not by pauses: a late event must not make all later ones late.
        self._due_s += self._interval_s
        self._timer = self._loop.call_at(self._due_s, self._tick)

    def _tick(self) -> None:
        if self._left > 0:
            self._left -= 1
            self._transport.write(messages.STREAM_EVENT)
            self._wait()
        else:
            self._timer = None
            self._transport.write(messages.STREAM_TAIL)


def _control(received: bytearray) -> bytes:
    """What a healthy engine answers to the proxy's own questions."""
    if received.startswith((b"GET /ready ", b"GET /health ")):
        return messages.READY
    if received.startswith(b"GET /v1/loads"):
        return messages.LOADS
    return messages.SERVER_INFO if received.startswith(b"GET /server_info ") else messages.NOT_FOUND


async def serve(rate: float, events: int) -> None:
    """Serve until terminated: one engine, reached by two ports as if it were two."""
    loop = asyncio.get_running_loop()
    servers = [
        await loop.create_server(lambda: Exchange(1 / rate, events), "127.0.0.1", 0, backlog=BACKLOG) for _ in range(2)
    ]
    print(*(server.sockets[0].getsockname()[1] for server in servers), flush=True)
    await loop.create_future()


if __name__ == "__main__":
    uvloop.run(serve(float(sys.argv[1]), int(sys.argv[2])))

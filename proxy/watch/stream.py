"""Server-sent events to whoever watches: each reader gets the same bytes once a second, and a slow one is dropped.

What the events say is made in watch.py; nothing is made while nobody reads.
"""

import asyncio
import socket
from typing import Any

from aiohttp import web

from proxy.watch.json_text import json_text
from proxy.wire.untaken import unacknowledged_bytes, untaken_bytes

# A page at each operator's desk. Each reader costs some microseconds a second.
MAX_READERS = 32
# What our kernel takes ahead of a reader; by default it takes megabytes, and who never reads would keep its place for
# hours. Linux doubles it.
KERNEL_BYTES = 1 << 16
# What may wait for a reader once that is full: minutes of a quiet proxy, some seconds of a busy one.
MAX_UNSENT_BYTES = 1 << 17
# On a quiet proxy all that takes minutes to fill: who takes nothing of what waits for so long does not read, or is not
# there any more. A page that was asleep comes back by itself.
UNREAD_S = 30.0
# After a break browsers come back so soon.
AGAIN_MS = 2000
HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # a reverse proxy in between must not hold events back
}


def event(name: str, told: Any) -> bytes:
    """One server-sent event. JSON has no line ends of its own, so it is one line of data."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), json_text(told))


class _Reader:
    """One reader: what it is still to be sent, None for the end."""

    __slots__ = ("_left_bytes", "_queue", "_request", "_taken_at_s", "_waiting_bytes")

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._waiting_bytes = 0
        self._left_bytes = 0  # of what it was told until the latest events, what it had not taken
        self._taken_at_s = asyncio.get_running_loop().time()
        if request.transport is not None and (opened := request.transport.get_extra_info("socket")) is not None:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, KERNEL_BYTES)

    @property
    def gone(self) -> bool:
        """Whether its connection is lost."""
        transport = self._request.transport
        return transport is None or transport.is_closing()

    def unsent_bytes(self) -> int:
        """What waits for it, here and in our kernel."""
        transport = self._request.transport
        return self._waiting_bytes + (0 if transport is None else untaken_bytes(transport))

    def unread_s(self) -> float:
        """For how long it has taken nothing of what waits for it, in our kernel too. Asked before each `tell`."""
        now_s, transport = asyncio.get_running_loop().time(), self._request.transport
        waits = 0 if transport is None else transport.get_write_buffer_size() + unacknowledged_bytes(transport)
        left_bytes = self._waiting_bytes + waits
        if not left_bytes or left_bytes < self._left_bytes:
            self._taken_at_s = now_s
        self._left_bytes = left_bytes
        return now_s - self._taken_at_s

    def tell(self, events: bytes) -> None:
        """Send events after those that wait."""
        self._queue.put_nowait(events)
        self._waiting_bytes += len(events)
        self._left_bytes += len(events)

    def end(self, *, at_once: bool = False) -> None:
        """Send nothing more; `at_once` not even what waits."""
        if at_once and self._request.transport is not None:
            self._request.transport.abort()
        self._queue.put_nowait(None)

    async def next(self) -> bytes | None:
        """The events that come next."""
        events = await self._queue.get()
        self._waiting_bytes -= len(events or b"")
        return events


class Stream:
    """The readers of one proxy."""

    def __init__(self) -> None:
        self._readers: set[_Reader] = set()
        self._closed = False

    @property
    def readers(self) -> int:
        """How many there are, with those that have left since the last events."""
        return len(self._readers)

    @property
    def full(self) -> bool:
        """Whether there is no room for another reader, or no stream any more."""
        return self._closed or sum(not reader.gone for reader in self._readers) >= MAX_READERS

    def publish(self, events: bytes) -> None:
        """Hand events to every reader; one that does not keep up loses its connection, and comes back anew."""
        for reader in list(self._readers):
            if reader.gone or reader.unsent_bytes() > MAX_UNSENT_BYTES or reader.unread_s() > UNREAD_S:
                self._readers.discard(reader)
                reader.end(at_once=True)
            else:
                reader.tell(events)

    async def serve(self, request: web.Request, first: bytes) -> web.StreamResponse:
        """Send `first` and then everything that is published, until the reader leaves or the stream ends."""
        reader = _Reader(request)
        response = web.StreamResponse(headers=HEADERS)
        self._readers.add(reader)
        try:
            await response.prepare(request)
            await response.write(b"retry: %d\n\n" % AGAIN_MS + first)
            while (events := await reader.next()) is not None:
                await response.write(events)
        except ConnectionError:
            pass  # it has left, or was dropped
        finally:
            self._readers.discard(reader)
        return response

    def close(self) -> None:
        """End every stream, and take no more readers."""
        self._closed = True
        self.end()

    def end(self) -> None:
        """End every stream. Who reads may come back."""
        for reader in self._readers:
            reader.end(at_once=reader.unsent_bytes() > KERNEL_BYTES)

"""Server-sent events to whoever watches: each reader gets the same bytes once a second, and a slow one is dropped.

What the events say is made in watch.py; nothing is made while nobody reads.
"""

import asyncio
from typing import Any

from aiohttp import web

from proxy.watch.json_text import json_text

# A page at each operator's desk. Each reader costs some microseconds a second.
MAX_READERS = 32
# Turns that a reader may be behind what its socket takes: a quarter of a minute, at most half a megabyte.
MAX_BEHIND = 16
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


class Stream:
    """The readers of one proxy."""

    def __init__(self) -> None:
        self._readers: dict[asyncio.Queue[bytes | None], web.Request] = {}
        self._closed = False

    @property
    def readers(self) -> int:
        """How many read."""
        return len(self._readers)

    @property
    def full(self) -> bool:
        """Whether there is no room for another reader, or no stream any more."""
        return self._closed or len(self._readers) >= MAX_READERS

    def publish(self, events: bytes) -> None:
        """Hand events to every reader; one that does not keep up loses its connection, and comes back anew."""
        for queue, request in list(self._readers.items()):
            try:
                queue.put_nowait(events)
            except asyncio.QueueFull:
                del self._readers[queue]
                if request.transport is not None:
                    request.transport.abort()

    async def serve(self, request: web.Request, first: bytes) -> web.StreamResponse:
        """Send `first` and then everything that is published, until the reader leaves or the stream ends."""
        queue: asyncio.Queue[bytes | None] = asyncio.Queue(MAX_BEHIND)
        response = web.StreamResponse(headers=HEADERS)
        self._readers[queue] = request
        try:
            await response.prepare(request)
            await response.write(b"retry: %d\n\n" % AGAIN_MS + first)
            while (events := await queue.get()) is not None:
                await response.write(events)
        except ConnectionError:
            pass  # it has left, or was dropped
        finally:
            self._readers.pop(queue, None)
        return response

    def close(self) -> None:
        """End every stream, and take no more readers."""
        self._closed = True
        self.end()

    def end(self) -> None:
        """End every stream. Who reads may come back."""
        for queue, request in self._readers.items():
            try:
                queue.put_nowait(None)
            except asyncio.QueueFull:
                if request.transport is not None:
                    request.transport.abort()

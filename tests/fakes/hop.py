"""A hop in front of the proxy, as nginx is: it gives a request up when nothing has come from behind for too long.

Its clock is moved by the test, so that minutes of silence take no time.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from fakes.until import turns


class Hop:
    """Passes bytes between clients and the proxy; `seen_bytes` have come from behind, `cuts` requests were given up."""

    def __init__(self, behind: int, read_timeout_s: float) -> None:
        self.port = 0
        self.now_s = 0.0
        self.seen_bytes = 0
        self.cuts = 0
        self._behind = behind
        self._read_timeout_s = read_timeout_s
        self._open: dict[asyncio.StreamWriter, float] = {}

    async def wait(self, seconds: float) -> None:
        """Let time pass, second by second, and cut who has been silent for too long."""
        for _ in range(int(seconds)):
            self.now_s += 1
            for client, heard_s in list(self._open.items()):
                if self.now_s - heard_s >= self._read_timeout_s:
                    self.cuts += 1
                    client.transport.abort()
                    del self._open[client]
        await turns()

    async def connected(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        """Carry one connection."""
        behind, to_behind = await asyncio.open_connection("127.0.0.1", self._behind)
        self._open[client] = self.now_s
        try:
            async with asyncio.TaskGroup() as both:
                up = both.create_task(_pump(reader, to_behind))
                await self._down(behind, client)
                up.cancel()
        except* ConnectionError:
            pass
        finally:
            self._open.pop(client, None)
            to_behind.close()
            client.close()

    async def _down(self, behind: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        while data := await behind.read(65536):
            if client in self._open:
                self._open[client] = self.now_s
            self.seen_bytes += len(data)
            client.write(data)
            await client.drain()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Carry a request to behind; raises ConnectionError when its client is gone."""
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    raise ConnectionResetError("the client, or this hop in its place, has closed")


@contextlib.asynccontextmanager
async def hop_before(port: int, *, read_timeout_s: float) -> AsyncIterator[Hop]:
    """A hop that listens in front of `port`."""
    hop = Hop(port, read_timeout_s)
    server = await asyncio.start_server(hop.connected, "127.0.0.1", 0)
    hop.port = server.sockets[0].getsockname()[1]
    async with server:
        yield hop

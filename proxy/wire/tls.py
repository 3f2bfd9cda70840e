"""TLS handshakes on a port, each in a task of its own, before the server behind the port sees the connection.

Certificates are read in config/certificates.py. The loop's own TLS is not used: it counts no handshake that fails or
hangs, lets as many hang as there are descriptors, and keeps the certificate that it began with.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from aiohttp import web

from proxy import tasks
from proxy.closing import CloseReason

# A client that is told of the end and does not answer is waited for so long; the loop's default is half a minute.
SHUTDOWN_S = 2.0
# Out of descriptors none comes back at once.
ACCEPT_AGAIN_S = 0.1
# The loop's clock and its timers count whole milliseconds: a handshake that ran out of time may seem to be early.
TICK_S = 0.005
# As much of an answer as plain connections buffer for a slow reader. The loop's default for TLS is eight times that.
MAX_UNSENT_BYTES = 65536

Make = Callable[[], asyncio.Protocol]


class TlsPort:
    """Accepts connections of a listening socket and shakes hands on each; the server sees those that are secured.

    `context` may be replaced at any time, later handshakes use the new one. `room` says how many connections there may
    be beside those that are handed over; `closed` is told of each that was not.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        *,
        handshake_s: float,
        closed: Callable[[CloseReason], None],
        room: Callable[[], float],
    ) -> None:
        self.context = context
        self.handshake_s = handshake_s
        self.closed = closed
        self._room = room
        self._greeting: set[asyncio.Task[None]] = set()

    async def accept(self, listening: socket.socket, make: Make) -> None:
        """Take connections until cancelled; `make` makes the protocol of one."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                wire, _ = await loop.sock_accept(listening)
            except OSError:  # out of descriptors, or a client that is gone already
                await asyncio.sleep(ACCEPT_AGAIN_S)
                continue
            if len(self._greeting) >= self._room():
                self.closed(CloseReason.OVER_LIMIT)
                wire.close()
                continue
            task = tasks.spawn(self._greet(wire, make), name="tls handshake")
            self._greeting.add(task)
            task.add_done_callback(self._greeting.discard)

    async def stop(self) -> None:
        """Drop those that still shake hands."""
        await tasks.end(*self._greeting)

    async def _greet(self, wire: socket.socket, make: Make) -> None:
        loop = asyncio.get_running_loop()
        late_s = loop.time() + self.handshake_s - TICK_S
        secured = False
        try:
            transport, _ = await loop.connect_accepted_socket(
                make,
                wire,
                ssl=self.context,
                ssl_handshake_timeout=self.handshake_s,
                ssl_shutdown_timeout=SHUTDOWN_S,
            )
            secured = True
            transport.set_write_buffer_limits(high=MAX_UNSENT_BYTES)
        except OSError:  # of which TLS errors are a kind
            self.closed(CloseReason.HANDSHAKE_LATE if loop.time() >= late_s else CloseReason.HANDSHAKE_FAILED)
        finally:
            if not secured:
                wire.close()


class Listening(Protocol):
    """Listening sockets from which connections are taken."""

    @property
    def sockets(self) -> Sequence[Any]:
        """The sockets."""

    def close(self) -> None:
        """Take no more connections; those that were taken stay."""


class _Accepting:
    """Listening sockets that a TLS port takes connections from, in the shape of asyncio's own server."""

    def __init__(self, listening: list[socket.socket], port: TlsPort, make: Make) -> None:
        self.sockets = listening
        self._tasks = [tasks.spawn(port.accept(each, make), name="tls accept") for each in listening]

    def close(self) -> None:
        """Take no more connections."""
        for listening, task in zip(self.sockets, self._tasks, strict=True):
            task.add_done_callback(partial(_close, listening))
            task.cancel()


async def listen(make: Make, host: str, port: int, *, backlog: int, tls: TlsPort | None) -> Listening:
    """Listen, with or without TLS, for connections that `make` makes protocols for. Raises OSError when the port cannot
    be had."""
    loop = asyncio.get_running_loop()
    if tls is None and host != "::":
        return await loop.create_server(make, host, port, backlog=backlog)
    listening = await _open(host, port, backlog)
    if tls is None:
        return await loop.create_server(make, sock=listening[0], backlog=backlog)
    return _Accepting(listening, tls, make)


async def _open(host: str, port: int, backlog: int) -> list[socket.socket]:
    """A listening socket for each address of the host. "::" is both families': the loop would give it to IPv6 alone,
    whatever the system's own default is."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    both = host == "::" and socket.has_dualstack_ipv6()
    opened: list[socket.socket] = []
    for family, address in dict.fromkeys((each[0], each[4][:2]) for each in found):
        listening = socket.create_server(address, family=family, backlog=backlog, dualstack_ipv6=both)
        listening.setblocking(False)
        opened.append(listening)
    return opened


class Site(web.BaseSite):
    """A listening socket of a runner of aiohttp, with or without TLS before its server. Each connection is a
    `protocol`."""

    def __init__(
        self,
        runner: web.BaseRunner,
        host: str,
        port: int,
        *,
        backlog: int,
        tls: TlsPort | None,
        protocol: type[web.RequestHandler] = web.RequestHandler,
    ) -> None:
        super().__init__(runner, backlog=backlog)
        self._host, self._port, self._tls, self._protocol = host, port, tls, protocol

    @property
    def name(self) -> str:
        """Where it listens."""
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://{self._host}:{self._port}"

    async def start(self) -> None:
        """Listen. Raises OSError when the port cannot be had."""
        await super().start()
        server = self._runner.server
        assert server is not None
        loop = asyncio.get_running_loop()

        def connection() -> asyncio.Protocol:
            return self._protocol(server, loop=loop, access_log=None)  # type: ignore[arg-type]  # None: nothing is logged

        listening = await listen(connection, self._host, self._port, backlog=self._backlog, tls=self._tls)
        self._server = listening  # type: ignore[assignment]


def _close(listening: socket.socket, _: object) -> None:
    listening.close()

"""TLS handshakes on a port, each in a task of its own, before the server behind the port sees the connection.

Certificates are read in config/certificates.py. The loop's own TLS is not used: it counts no handshake that fails or
hangs, lets as many hang as there are descriptors, and keeps the certificate that it began with.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Any

from aiohttp import web

from proxy import tasks
from proxy.model import CloseReason

# A client that is told of the end and does not answer is waited for so long; the loop's default is half a minute.
SHUTDOWN_S = 2.0
# As much of an answer as plain connections buffer for a slow reader. The loop's default for TLS is eight times that.
MAX_UNSENT_BYTES = 65536

Make = Callable[[], asyncio.Protocol]


class TlsPort:
    """Makes protocols for a listening socket: they shake hands, then hand over to what `make` makes.

    `context` may be replaced at any time, later handshakes use the new one. `room` says how many connections there may
    be beside those that are handed over; `closed` is told of each that was not. `layered` is told the transport
    under the TLS of each that is: what a client does not take waits in that one, unseen from above.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        *,
        handshake_s: float,
        closed: Callable[[CloseReason], None],
        room: Callable[[], float],
        layered: Callable[[asyncio.Protocol, asyncio.Transport], None],
    ) -> None:
        self.context = context
        self.handshake_s = handshake_s
        self.closed = closed
        self.layered = layered
        self._room = room
        self._greeting: dict[_Greeter, asyncio.Task[None]] = {}

    def greeter(self, make: Make) -> "_Greeter":
        """The protocol for one new connection."""
        return _Greeter(self, make)

    def begin(self, greeter: "_Greeter", transport: asyncio.Transport) -> None:
        """Shake hands on a new connection, or close it where there is no room."""
        if len(self._greeting) >= self._room():
            self.closed(CloseReason.OVER_LIMIT)
            transport.abort()
            return
        transport.pause_reading()  # the first bytes are for TLS, which takes over in a moment
        self._greeting[greeter] = tasks.spawn(self._greet(greeter, transport), name="tls handshake")

    async def stop(self) -> None:
        """Drop those that still shake hands."""
        await tasks.end(*self._greeting.values())

    async def _greet(self, greeter: "_Greeter", transport: asyncio.Transport) -> None:
        loop = asyncio.get_running_loop()
        late_s = loop.time() + self.handshake_s
        secured: asyncio.Transport | None = None
        try:
            secured = await loop.start_tls(
                transport,
                greeter,
                self.context,
                server_side=True,
                ssl_handshake_timeout=self.handshake_s,
                ssl_shutdown_timeout=SHUTDOWN_S,
            )
        except OSError:  # of which TLS errors are a kind
            self.closed(CloseReason.HANDSHAKE_LATE if loop.time() >= late_s else CloseReason.HANDSHAKE_FAILED)
        finally:
            self._greeting.pop(greeter, None)
            if secured is None:
                transport.abort()
        if secured is not None:
            greeter.hand_over(secured, transport)


class _Greeter(asyncio.Protocol):
    """One connection until its handshake is over; keeps what the client sends right behind it."""

    def __init__(self, port: TlsPort, make: Make) -> None:
        self._port = port
        self._make = make
        self._early: list[bytes] = []
        self._lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._port.begin(self, transport)

    def data_received(self, data: bytes) -> None:
        self._early.append(data)

    def connection_lost(self, _: BaseException | None) -> None:
        self._lost = True

    def hand_over(self, transport: asyncio.Transport, beneath: asyncio.Transport) -> None:
        """Give the connection to the server; not one that the client has closed meanwhile."""
        if self._lost:
            return
        transport.set_write_buffer_limits(high=MAX_UNSENT_BYTES)
        protocol = self._make()
        self._port.layered(protocol, beneath)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        for data in self._early:
            protocol.data_received(data)


class Site(web.TCPSite):
    """A listening socket of a runner, with or without TLS before its server."""

    def __init__(self, runner: web.BaseRunner, host: str, port: int, *, backlog: int, tls: TlsPort | None) -> None:
        super().__init__(runner, host, port, backlog=backlog)
        self._tls = tls

    async def start(self) -> None:
        """Listen. Raises OSError when the port cannot be had."""
        await web.BaseSite.start(self)
        tls, server = self._tls, self._runner.server
        assert server is not None
        # The loop would give "::" to IPv6 alone, whatever the system's own default is.
        both = self._host == "::" and socket.has_dualstack_ipv6()
        where: dict[str, Any] = {"host": self._host, "port": self._port}
        if both:
            address = ("::", self._port)
            where = {"sock": socket.create_server(address, family=socket.AF_INET6, dualstack_ipv6=True)}
        self._server = await asyncio.get_running_loop().create_server(
            server if tls is None else lambda: tls.greeter(server), **where, backlog=self._backlog
        )

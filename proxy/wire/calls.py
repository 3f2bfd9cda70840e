"""Calls one backend over kept connections: which of them may be used again, how new ones are made, and what failures
are called.

Foreign errors are translated here, once. Deciding what to do about them is in relay.py; what goes over a connection is
in connection.py.
"""

import asyncio
import ssl
from ipaddress import ip_address
from urllib.parse import urlsplit

from proxy.errors import BackendBroken, BackendUnreachable, ConnectTimeout, StaleConnection, UpstreamError
from proxy.wire.answer import Answer
from proxy.wire.connection import Call, Connection
from proxy.wire.deadlines import Deadlines, Wait
from proxy.wire.lack import lack
from proxy.wire.names import Address, Names
from proxy.wire.race import first_to_connect

# Both engines run uvicorn, which closes a kept connection after 5 s of idleness; one used again just then is lost.
# Three seconds leave two for the request to arrive.
POOL_IDLE_S = 3.0
# How long a kept connection is used at most: names are looked up for new connections alone, and under steady traffic an
# engine that has moved would be missed for as long as its old address answers.
MAX_AGE_S = 30.0
# A connection that was closed while idle fails within a round trip. A failure later than this came after the engine
# had the request, so sending it again could run the prompt twice.
STALE_WITHIN_S = 0.1


class Upstream:
    """A backend one can send a call to, with its connections: those that are kept are the last of a list, and the one
    that was used last is used again first. Its `deadlines` are for those who wait for its answers."""

    def __init__(self, url: str, *, connect_s: float, names: Names | None = None) -> None:
        parts = urlsplit(url)
        self._host = parts.hostname or ""
        self._tls = _verifying() if parts.scheme == "https" else None
        self._port = parts.port or (443 if self._tls else 80)
        self._connect_s = connect_s
        self._names = names or Names()
        self.deadlines = Deadlines()
        self._open: set[Connection] = set()
        self._made_s = float("-inf")  # the latest of them
        self._kept: list[Connection] = []
        self._sweeper: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # once there is one: asking for it is a system call

    async def send(self, call: Call, *, fresh: bool = False, wait: Wait | None = None) -> Answer:
        """Send and wait for the head; `fresh` opens a new connection, for this call alone. Raises UpstreamError. Waits
        as long as the head takes: a limit is the caller's, whose `wait` learns of the head first."""
        loop = self._loop = self._loop or asyncio.get_running_loop()
        began_s = loop.time()
        connection = None if fresh else self._take(began_s)
        reused = connection is not None
        if connection is None:
            connection = await self._connect(loop, keeps=not fresh)
        waiter = connection.ask(call)
        if wait is not None:
            wait.come = waiter.done
        try:
            answer = await waiter
        except asyncio.CancelledError:
            _give_up(connection, waiter)
            raise
        if answer is not None:
            return answer
        if reused and connection.silent and loop.time() - began_s < STALE_WITHIN_S:
            raise StaleConnection("the backend closed a kept connection as it was used again")
        raise BackendBroken(connection.fault)

    async def close(self) -> None:
        """Close all connections."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        self._kept.clear()
        for connection in list(self._open):
            connection.abort()

    # ------------------------------------------------------------ told by connections

    def keep(self, connection: Connection) -> None:
        """See Home.keep."""
        loop = self._loop = self._loop or asyncio.get_running_loop()
        connection.idle_s = loop.time()
        self._kept.append(connection)
        if self._sweeper is None:
            self._sweeper = loop.call_later(POOL_IDLE_S, self._sweep, loop)

    def forget(self, connection: Connection) -> None:
        """See Home.forget."""
        self._open.discard(connection)
        if connection in self._kept:
            self._kept.remove(connection)

    # ------------------------------------------------------------ the pool

    def _take(self, now_s: float) -> Connection | None:
        """The connection that was used last, unless none is good any more."""
        kept = self._kept
        while kept:
            connection = kept.pop()
            idle_s, age_s = now_s - connection.idle_s, now_s - connection.opened_s
            if idle_s < POOL_IDLE_S and age_s < MAX_AGE_S and connection.is_usable():
                return connection
            connection.abort()
        return None

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close what has been idle for too long, the first ones, and look again when the next one will have been."""
        kept, now_s = self._kept, loop.time()
        while kept and now_s - kept[0].idle_s >= POOL_IDLE_S:
            kept.pop(0).abort()
        self._sweeper = loop.call_at(kept[0].idle_s + POOL_IDLE_S, self._sweep, loop) if kept else None

    # ------------------------------------------------------------ new connections

    async def _connect(self, loop: asyncio.AbstractEventLoop, *, keeps: bool) -> Connection:
        async def connect(address: Address) -> Connection:
            server_hostname = self._host.rstrip(".") if self._tls is not None else None
            made = Connection(loop, self, keeps=keeps)
            try:
                await loop.create_connection(
                    lambda: made, address.host, address.port, ssl=self._tls, server_hostname=server_hostname
                )
            except BaseException:
                made.forsake()
                raise
            return made

        try:
            async with asyncio.timeout(self._connect_s):
                connection = await first_to_connect(await self._addresses(), connect)
        except (OSError, ValueError) as error:
            unused_s = 0.0 if self._open else loop.time() - self._made_s
            raise lack(error, unused_s) or _translate(error) from error
        self._made_s = loop.time()
        if not connection.closed:  # it may be gone in the moment it has come
            self._open.add(connection)
        return connection

    async def _addresses(self) -> list[Address]:
        try:
            ip_address(self._host)
        except ValueError:
            return await self._names.resolve(self._host, self._port)
        return [Address(self._host, self._port, 0)]


def _verifying() -> ssl.SSLContext:
    """How an engine's certificate is verified: by the authorities that this machine trusts."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(("http/1.1",))
    return context


def _give_up(connection: Connection, waiter: "asyncio.Future[Answer | None]") -> None:
    """The caller has gone. Where the answer had come already, its connection may be another call's by now."""
    if waiter.cancelled():
        connection.abort()
    elif (answer := waiter.result()) is not None:
        answer.close()


def _translate(error: Exception) -> UpstreamError:
    """What became of a connection that was not made; messages name no address, since clients may see them."""
    if isinstance(error, TimeoutError):
        return ConnectTimeout("the backend took no connection within timeouts.connect_s; is its host reachable?")
    kind = type(error).__name__
    return BackendUnreachable(f"no connection to the backend ({kind}); is it running at the configured url?")

"""The server under the client port: its connections, their limits, and what is counted and logged of them.

One connection is in wire/client.py, which requests are let in in door.py, what happens to connections before they are
here in wire/arrivals.py and wire/tls.py. Whatever has to be noticed without an event is noticed by one look a second,
not by timers.
"""

import asyncio

from structlog.typing import FilteringBoundLogger

from proxy.closing import CloseReason
from proxy.errors import CrossoverError, Side
from proxy.metrics import Metrics
from proxy.wire.arrivals import ConnectionRules, Surplus
from proxy.wire.client import Client
from proxy.wire.host import Door
from proxy.wire.request import Request
from proxy.wire.tls import Listening, TlsPort, listen

# Limits are looked after so often, or four times within the shortest of them.
LOOK_EVERY_S = 1.0


class FrontServer:
    """Makes a connection of each client, and looks after all of them. `door` answers their requests."""

    def __init__(
        self,
        door: Door,
        metrics: Metrics,
        logger: FilteringBoundLogger,
        rules: ConnectionRules,
        *,
        keepalive_s: float,
    ) -> None:
        self.door = door
        self.metrics = metrics
        self.log = logger
        self.rules = rules
        self.keepalive_s = keepalive_s
        self.leaving = False  # every answer is the last on its connection
        self.connections: set[Client] = set()
        self.heads: dict[Client, float] = {}  # whose head has not ended, and since when it is waited for; oldest first
        self.idle: dict[Client, float] = {}  # who waits for nothing, and since when; oldest first
        # Those with too much behind the request that is answered, and that request as the last look saw it.
        self.crowded: dict[Client, Request | None] = {}
        self.surplus = Surplus(metrics.refused, metrics.closed)
        self._listening: Listening | None = None
        self._empty: asyncio.Future[None] | None = None  # the end of the last connection, where it is waited for
        self._look_timer: asyncio.TimerHandle | None = None
        self._look_every_s = LOOK_EVERY_S
        self._unread_look_s = 0.0
        self._left = False

    def __call__(self) -> Client:
        """What serves one new connection."""
        return Client(self)

    # ------------------------------------------------------------ life

    async def listen(self, host: str, port: int, *, backlog: int, tls: TlsPort | None) -> int:
        """Take connections; the port they come to. Raises OSError when it cannot be had."""
        self._listening = await listen(self, host, port, backlog=backlog, tls=tls)
        found: int = self._listening.sockets[0].getsockname()[1]
        return found

    def adopt(self, rules: ConnectionRules) -> None:
        """Work by these limits from now on, for connections that are open too."""
        self.rules = rules

    def leave(self) -> None:
        """Close idle connections now and busy ones after their answer."""
        self.leaving = self._left = True
        for client in tuple(self.connections):
            if not client.is_silent():  # what has just come has a moment to begin
                client.leave()

    def stop_listening(self) -> None:
        """Take no more connections."""
        if self._listening is not None:
            self._listening.close()
            self._listening = None

    def abort(self) -> None:
        """Close every connection now, unsent bytes and all."""
        self.surplus.abort()
        for client in tuple(self.connections):
            client.abort()

    async def close(self, within_s: float) -> None:
        """Take no more connections, close every one now, and wait until none is left."""
        self.stop_listening()
        self.abort()
        if self.connections:
            self._empty = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._empty], timeout=within_s)
        if self._look_timer is not None:
            self._look_timer.cancel()
            self._look_timer = None

    def is_busy(self) -> bool:
        """Whether a request is being answered on any connection."""
        return any(client.is_busy() for client in self.connections)

    def room(self) -> int:
        """How many more connections there may be."""
        return self.rules.max_connections - len(self.connections)

    def forget(self, client: Client) -> None:
        """A connection has ended."""
        self.connections.discard(client)
        self.heads.pop(client, None)
        self.idle.pop(client, None)
        self.crowded.pop(client, None)
        if self._empty is not None and not self.connections and not self._empty.done():
            self._empty.set_result(None)

    # ------------------------------------------------------------ looks

    def watch(self) -> None:
        """Look after the limits for as long as there are connections."""
        if self._look_timer is None:
            rules = self.rules
            self._look_every_s = min(LOOK_EVERY_S, rules.head_timeout_s / 4, rules.unread_s / 4, self.keepalive_s / 4)
            self._look_timer = asyncio.get_running_loop().call_later(self._look_every_s, self._look)

    def _look(self) -> None:
        self._look_timer = None
        now_s = asyncio.get_running_loop().time()
        for client in _overdue(self.heads, now_s - self.rules.head_timeout_s):
            client.give_up_head()
        for client in _overdue(self.idle, now_s - self.keepalive_s):
            client.dismiss(CloseReason.IDLE)
        if self._left:
            self._leave_silent(now_s - self._look_every_s)
        self._drop_crowded()
        if now_s >= self._unread_look_s:
            self._unread_look_s = now_s + self.rules.unread_s / 4
            self._drop_unread(now_s)
        if self.connections:
            self.watch()

    def _leave_silent(self, before_s: float) -> None:
        """Close connections that had a moment to begin a request and did not."""
        for client, since_s in tuple(self.heads.items()):
            if since_s <= before_s and client.is_silent():
                client.leave()

    def _drop_crowded(self) -> None:
        """Drop clients that have too much behind the same request for two looks: one look alone may come between the
        end of an answer and ours of it, when a client has every right to send on."""
        for client, seen in tuple(self.crowded.items()):
            request = client.crowds()
            if request is None:
                del self.crowded[client]
            elif request is seen:
                client.drop(CloseReason.FLOODED)
            else:
                self.crowded[client] = request

    def _drop_unread(self, now_s: float) -> None:
        """Drop clients that take nothing, in whatever state: passages watch their own, and answers that are short, or
        followed by the end of the connection, have nobody else."""
        for client in tuple(self.connections):
            if client.unread_s(now_s) >= self.rules.unread_s:
                client.drop(CloseReason.UNREAD)

    # ------------------------------------------------------------ what is counted and logged

    def closed(self, reason: CloseReason) -> None:
        """Count a connection that is ended without an answer."""
        self.metrics.closed(reason)

    def refused(self, error: CrossoverError, peer: str) -> None:
        """Count and log what is refused without a request."""
        self._record(error, error, peer)

    def failed(self, cause: Exception, peer: str) -> CrossoverError:
        """Count and log what nobody caught; what the client is told of it."""
        told = cause
        if not isinstance(told, CrossoverError):
            told = CrossoverError("the proxy failed on this request; its log has the reason")
        self._record(told, cause, peer)
        return told

    def _record(self, error: CrossoverError, cause: Exception, peer: str) -> None:
        self.metrics.refused(error.code)
        client = peer or None
        if error.side is Side.CLIENT:
            self.log.info("request_refused", client=client, status=error.status, code=error.code)
        else:
            self.log.error("request_failed", client=client, status=error.status, exc_info=cause)


def _overdue(since: dict[Client, float], before_s: float) -> list[Client]:
    """Those who wait since then or longer, taken out."""
    found: list[Client] = []
    for client, since_s in since.items():
        if since_s > before_s:
            break
        found.append(client)
    for client in found:
        del since[client]
    return found

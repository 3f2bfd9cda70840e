"""The server under the client port: connections, the framing of requests, their limits, and errors in our own shape.

Which requests are let in is in door.py, what happens to connections before they are here in wire/arrivals.py and
wire/tls.py. Whatever has to be noticed without an event is noticed by one look a second, not by timers.
"""

import asyncio
from typing import Any, cast

from aiohttp import StreamReader, web
from aiohttp.http_exceptions import LineTooLong
from aiohttp.streams import EMPTY_PAYLOAD
from aiohttp.web_protocol import RequestHandler, _ErrInfo
from structlog.typing import FilteringBoundLogger

from proxy.door import Door, upgrades
from proxy.errors import CrossoverError, HeadTimeout, InvalidRequest, Side
from proxy.metrics import Metrics
from proxy.model import CloseReason, Dialect
from proxy.wire.arrivals import ConnectionRules, Surplus
from proxy.wire.downstream import error_response
from proxy.wire.heads import fault_of, too_large

# Limits are looked after so often, or four times within the shortest of them.
LOOK_EVERY_S = 1.0
# Of further requests before an answer. Some small ones sent in a row fit; what lies here is in nobody's books, and
# behind a few times as much aiohttp stops to read, which makes a connection deaf to its client's leaving.
MAX_AHEAD_BYTES = 65536
# What aiohttp's parser says above its number of headers; it has one class of error for much.
TOO_MANY_HEADERS = "Too many headers received"


class FrontServer(web.Server):
    """aiohttp's low-level server (no Application: one handler, no middlewares) with our own limits and answers."""

    def __init__(
        self,
        door: Door,
        metrics: Metrics,
        logger: FilteringBoundLogger,
        rules: ConnectionRules,
        *,
        keepalive_s: float,
    ) -> None:
        super().__init__(
            door,
            handler_cancellation=True,  # or a client that leaves while it waits would never be noticed
            access_log=None,
            keepalive_timeout=keepalive_s,
            auto_decompress=False,
        )
        self.door = door
        self.metrics = metrics
        self.log = logger
        self.leaving = False
        self.heads: dict[_Front, float] = {}  # whose head has not ended, and since when it is waited for; oldest first
        # Those with too much behind the request that is answered, and that request as the last look saw it.
        self.crowded: dict[_Front, web.BaseRequest | None] = {}
        self.surplus = Surplus(metrics.refused, metrics.closed)
        self._look_timer: asyncio.TimerHandle | None = None
        self._unread_look_s = 0.0
        self.adopt(rules)

    def adopt(self, rules: ConnectionRules) -> None:
        """Work by these limits from now on; connections that are open keep their number of headers."""
        self.rules = rules
        # A single field may take all of the head: the whole of it is measured here.
        lines = {"max_line_size": rules.max_head_bytes, "max_field_size": rules.max_head_bytes}
        self._kwargs.update(lines, max_headers=rules.max_headers)

    def room(self) -> int:
        """How many more connections there may be."""
        return self.rules.max_connections - len(self._connections)

    def pre_shutdown(self) -> None:
        """Close idle connections now and busy ones after their answer. aiohttp would leave idle ones open and deaf."""
        self.leaving = True
        for connection in self.connections:
            if isinstance(connection, _Front):
                connection.leave()

    def is_busy(self) -> bool:
        """Whether a request is being answered on any connection."""
        return any(isinstance(connection, _Front) and connection.is_busy() for connection in self.connections)

    def abort(self) -> None:
        """Close every connection now, unsent bytes and all."""
        self.surplus.abort()
        for transport in tuple(self._connections.values()):
            transport.abort()

    def watch(self) -> None:
        """Look after the limits for as long as there are connections."""
        if self._look_timer is None:
            every_s = min(LOOK_EVERY_S, self.rules.head_timeout_s / 4, self.rules.unread_s / 4)
            self._look_timer = self._loop.call_later(every_s, self._look)

    def _look(self) -> None:
        self._look_timer = None
        now_s = self._loop.time()
        while self.heads:
            oldest, since_s = next(iter(self.heads.items()))
            if now_s - since_s < self.rules.head_timeout_s:
                break
            del self.heads[oldest]
            oldest.give_up_head()
        self._drop_crowded()
        if now_s >= self._unread_look_s:
            self._unread_look_s = now_s + self.rules.unread_s / 4
            self._drop_unread(now_s)
        if self._connections:
            self.watch()

    def _drop_crowded(self) -> None:
        """Drop clients that have too much behind the same request for two looks: one look alone may come between the
        end of an answer and ours of it, when a client has every right to send on."""
        for connection, seen in tuple(self.crowded.items()):
            request = connection.crowds()
            if request is None:
                del self.crowded[connection]
            elif request is seen:
                connection.drop(CloseReason.FLOODED)
            else:
                self.crowded[connection] = request

    def _drop_unread(self, now_s: float) -> None:
        """Drop clients that take nothing, in whatever state: passages watch their own, and answers that are short, or
        followed by the end of the connection, have nobody else."""
        for connection, transport in tuple(self._connections.items()):
            unsent_bytes = transport.get_write_buffer_size()
            if isinstance(connection, _Front) and connection.unread_s(unsent_bytes, now_s) >= self.rules.unread_s:
                self.metrics.closed(CloseReason.UNREAD)
                transport.abort()

    def _make_request(self, message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
        request = _Request(message, payload, protocol, writer, task, self._loop)
        if isinstance(protocol, _Front):
            protocol.begin(request)
        return request

    def __call__(self) -> RequestHandler:
        """A handler for one new connection."""
        return _Front(self, loop=self._loop, **self._kwargs)


class _Request(web.BaseRequest):
    """A request that knows whether its answer says `Connection: close`. While the proxy takes its leave all do: clients
    then come again on a new connection, to whoever serves by then, and none is caught by the closing."""

    @property
    def keep_alive(self) -> bool:
        server = self.protocol._manager
        leaving = isinstance(server, FrontServer) and server.leaving
        # A body that waits for our "100 Continue" never comes after an answer, or comes as if it were a request.
        return super().keep_alive and not leaving and self.content.is_eof() and not _is_last(self)

    async def _prepare_hook(self, response: web.StreamResponse) -> None:
        """The one place that every answer passes on its way out, whoever made it."""
        server = self.protocol._manager
        if isinstance(server, FrontServer):
            server.door.gate.stamp(self, response)


class _Front(RequestHandler):
    """One connection. Answers what aiohttp itself refuses (broken framing), what is over our limits, and what we failed
    to catch."""

    __slots__ = ("_answering", "_body", "_head_bytes", "_refused", "_server", "_unread")

    def __init__(self, server: FrontServer, **named: Any) -> None:
        super().__init__(server, **named)
        self._server = server
        self._body: StreamReader | None = None  # of the newest request
        self._answering: web.BaseRequest | None = None
        self._head_bytes = 0  # of a head that has not ended
        self._refused = False  # no further request is read
        self._unread: tuple[int, float] | None = None  # how much waited to be taken, and since when so much

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to serve, or turn away where there are too many. The clock of the first head runs."""
        if self._server.room() <= 0:
            # What the loop makes is a transport, whatever its class: uvloop's is none of asyncio's.
            self._server.surplus.turn_away(cast(asyncio.Transport, transport))
            return
        super().connection_made(transport)
        self._server.heads[self] = self._loop.time()
        self._server.watch()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Forget the connection."""
        self._server.heads.pop(self, None)
        self._server.crowded.pop(self, None)
        self._answering = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes. Costs a request that comes in one piece a few comparisons more than aiohttp's own."""
        if self._refused:
            return
        before = len(self._messages)
        in_body = self._body is not None and not self._body.is_eof()
        super().data_received(data)
        if len(self._messages) > before:
            self._heads_came(before, len(data))
        elif data and not in_body:
            self._head_grew(len(data))
        if self._upgraded:
            # aiohttp would read on behind our answer, past all that is looked at here.
            self._refused, self._message_tail = True, b""
        self._note_crowd()

    def begin(self, request: web.BaseRequest) -> None:
        """Take note of the request that is answered from now on."""
        self._answering = request
        self._note_crowd()

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send the end of an answer."""
        try:
            return await super().finish_response(request, resp, start_time)
        finally:
            self._answering = None

    def _note_crowd(self) -> None:
        if self._messages and self.crowds() is not None:
            self._server.crowded.setdefault(self, None)

    def crowds(self) -> web.BaseRequest | None:
        """The request that is being answered, where too much waits behind it."""
        if self._answering is None or not self._messages:
            return None
        # With requests behind it its own body has ended: a pause is on account of theirs.
        ahead_bytes = sum(body.total_bytes for _, body in self._messages)
        return self._answering if self._reading_paused or ahead_bytes > MAX_AHEAD_BYTES else None

    def _heads_came(self, first: int, size_bytes: int) -> None:
        """Look at new messages before anyone answers them. Where bytes break the framing of a body under way its reader
        is told: aiohttp only queues a refusal behind that request, which would wait for the rest of its body until its
        time is over."""
        self._server.heads.pop(self, None)
        most_bytes, self._head_bytes = self._head_bytes + size_bytes, 0
        for index in range(first, len(self._messages)):
            message, body = self._messages[index]
            if isinstance(message, _ErrInfo):
                self._refused = True
                if self._body is not None and not self._body.is_eof():
                    self._break_body(self._body)
                    self._forget(index)
                    self.close()  # behind the answer to that request, whatever it is: it takes no second one
                return
            fault = fault_of(message, most_bytes, self._server.rules)
            if fault is not None:
                self._forget(index)
                self._refuse(fault)
                return
            self._body = body

    def _forget(self, index: int) -> None:
        while len(self._messages) > index:
            self._messages.pop()

    @staticmethod
    def _break_body(body: StreamReader) -> None:
        body.set_exception(web.RequestPayloadError("the framing of the body is broken"))
        body.feed_eof()

    def _head_grew(self, size_bytes: int) -> None:
        """Count the bytes of a head that has not ended. (The first ones of a head that came behind another request, in
        one read, go uncounted: less than that read.)"""
        self._head_bytes += size_bytes
        if self._head_bytes > self._server.rules.max_head_bytes:
            self._server.heads.pop(self, None)
            self._refuse(too_large(self._server.rules))
        else:
            self._server.heads.setdefault(self, self._loop.time())

    def give_up_head(self) -> None:
        """End a connection whose head takes too long; one that has sent nothing has asked nothing."""
        if self._head_bytes == 0:
            self._server.metrics.closed(CloseReason.SILENT)
            self.force_close()
        else:
            limit_s = self._server.rules.head_timeout_s
            self._refuse(HeadTimeout(f"the head of the request took longer than listen.head_timeout_s ({limit_s:g} s)"))

    def _refuse(self, error: CrossoverError) -> None:
        """Answer what has come so far by an error, behind the requests before it, and read no more."""
        self._refused = True
        self._messages.append((_ErrInfo(error.status, error, error.message), EMPTY_PAYLOAD))
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def unread_s(self, unsent_bytes: int, now_s: float) -> float:
        """For how long the client has taken nothing of what waits for it; looked at now and then."""
        if unsent_bytes == 0:
            self._unread = None
        elif self._unread is None or self._unread[0] != unsent_bytes:
            self._unread = (unsent_bytes, now_s)
        return 0.0 if self._unread is None else now_s - self._unread[1]

    def drop(self, reason: CloseReason) -> None:
        """Close the connection now: the client is then gone like any other that leaves."""
        if self.transport is not None:
            self._server.metrics.closed(reason)
            self.transport.abort()

    def _process_keepalive(self) -> None:
        """Close an idle connection. One that has begun a request is not idle, and has a limit of its own."""
        if self in self._server.heads:
            self._keepalive_handle = None
            return
        was_open = not self._force_close
        super()._process_keepalive()
        if was_open and self._force_close:
            self._server.metrics.closed(CloseReason.IDLE)

    def _pause_reading_for_buffer(self) -> None:
        """Give up a client that sends dozens of requests in a row before it is answered: a connection that is not read
        does not tell either when the client has left."""
        self.drop(CloseReason.FLOODED)

    def is_busy(self) -> bool:
        """Whether a request has come and its answer is not written yet."""
        return self._request_in_progress or bool(self._messages)

    def leave(self) -> None:
        """Close the connection as soon as no request is on it. One that is still coming is let come, as is the first
        one of a connection that nobody looks after yet: a closing connection takes no more bytes, and
        `Connection: close` on the answer ends it then."""
        if self._body is not None and not self._body.is_eof():
            return
        if self in self._server.heads and (self._head_bytes or self._waiter is None):
            return
        if self._waiter is not None and not self._waiter.done():
            self.force_close()
        else:
            self.close()

    def handle_error(
        self, request: Any, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        if isinstance(exc, ConnectionError):
            raise exc  # the client is gone: nobody to answer, and nothing of ours has failed
        error = self._error(status, exc)
        self._record(error, exc, request.remote)
        if request.writer.output_size > 0:
            raise ConnectionError("an answer had begun and cannot be replaced by an error")
        return error_response(error, Dialect.PLAIN, close=True)

    def _error(self, status: int, cause: BaseException | None) -> CrossoverError:
        if isinstance(cause, CrossoverError):
            return cause
        if isinstance(cause, LineTooLong) or getattr(cause, "message", None) == TOO_MANY_HEADERS:
            return too_large(self._server.rules)
        if status < 500:
            return InvalidRequest("the request is not valid HTTP/1.1")
        return CrossoverError("the proxy failed on this request; its log has the reason")

    def _record(self, error: CrossoverError, cause: BaseException | None, client: str | None) -> None:
        server = self._server
        server.metrics.refused(error.code)
        if error.side is Side.CLIENT:
            server.log.info("request_refused", client=client, status=error.status, code=error.code)
        else:
            server.log.error("request_failed", client=client, status=error.status, exc_info=cause)


def _is_last(request: web.BaseRequest) -> bool:
    """Whether nothing that follows on the connection would be a request."""
    return request.method == "CONNECT" or upgrades(request)

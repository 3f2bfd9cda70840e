"""The client port: allow-list, the proxy's own health answers, and every error of ours in the right shape.

What happens to a request that is let in is in relay.py and inform.py.
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import StreamReader, web
from aiohttp.web_protocol import RequestHandler, _ErrInfo
from structlog.typing import FilteringBoundLogger

from proxy.errors import CrossoverError, InvalidRequest, ShuttingDown, Side, UpgradeRefused
from proxy.inform import Informer
from proxy.metrics import Metrics
from proxy.model import Dialect
from proxy.protocol import headers, routes
from proxy.protocol.routes import EngineKind, Route
from proxy.relay import Relay
from proxy.wire.downstream import SERVER, error_response

# Heads of clients: long keys, traces and cookies fit; aiohttp answers 400 above.
MAX_HEAD_LINE_BYTES = 65536


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether new requests are welcome, and if not why not, for probes and people."""

    ready: bool
    reason: str = "ok"


class Door:
    """Handles every request of the client port. `readiness` is asked at each probe; a route is let in when all
    `engines` have it, since either backend may get it."""

    def __init__(
        self,
        *,
        relay: Relay,
        informer: Informer,
        metrics: Metrics,
        logger: FilteringBoundLogger,
        engines: frozenset[EngineKind],
        readiness: Callable[[], Readiness],
    ) -> None:
        self.engines = engines
        self.closed = False
        self._relay = relay
        self._informer = informer
        self._metrics = metrics
        self._logger = logger
        self._readiness = readiness

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        pairs = list(request.headers.items())
        request_id = headers.request_id(pairs) or uuid.uuid4().hex
        dialect = Dialect.PLAIN
        try:
            own = self._own(request)
            if own is not None:
                return own
            if _upgrades(request):
                raise UpgradeRefused("upgrades such as WebSocket are not tunnelled; use the HTTP routes")
            route = self._find(request)
            dialect = route.dialect
            if self.closed:
                raise ShuttingDown("the proxy is shutting down; send the request to another instance or try again")
            if route.counts:
                return await self._relay.carry(request, route, request_id)
            return await self._answer(request, route, request_id)
        except CrossoverError as error:
            return self._refuse(error, dialect, request_id, request)

    def _own(self, request: web.BaseRequest) -> web.StreamResponse | None:
        path = request.raw_path.partition("?")[0]
        if request.method not in ("GET", "HEAD"):
            return None
        if path in routes.LIVENESS_PATHS:
            return web.json_response({"status": "alive"}, headers={"Server": SERVER})
        if path in routes.READINESS_PATHS:
            state = self._readiness()
            return web.json_response(
                {"status": "ready" if state.ready else "not_ready", "reason": state.reason},
                status=200 if state.ready else 503,
                headers={"Server": SERVER},
            )
        return None

    def _find(self, request: web.BaseRequest) -> Route:
        found = [routes.find(engine, request.method, request.raw_path) for engine in sorted(self.engines)]
        return found[0]

    async def _answer(self, request: web.BaseRequest, route: Route, request_id: str) -> web.StreamResponse:
        response = await self._informer.answer(request, route, request_id)
        self._logger.info(
            "question_answered",
            request_id=request_id,
            client=request.remote,
            method=request.method,
            route=route.template,
            status=response.status,
        )
        return response

    def _refuse(
        self, error: CrossoverError, dialect: Dialect, request_id: str, request: web.BaseRequest
    ) -> web.StreamResponse:
        self._metrics.refused(error.code)
        said = {"request_id": request_id, "client": request.remote, "status": error.status, "code": error.code}
        self._logger.info("request_refused", **said)
        # A body that waits for our "100 Continue" never comes after a refusal, or comes as if it were a request.
        close = isinstance(error, ShuttingDown | UpgradeRefused) or "Expect" in request.headers
        return error_response(error, dialect, [("x-request-id", request_id)], close=close)


def _upgrades(request: web.BaseRequest) -> bool:
    """Whether a request is of no use without its upgrade. The offer of HTTP/2, which Java's own client makes with every
    first request, may be passed over (RFC 9110, section 7.8)."""
    asked = any("upgrade" in value.lower() for value in request.headers.getall("Connection", []))
    return asked and request.headers.get("Upgrade", "").strip().lower() not in ("", "h2c")


class FrontServer(web.Server):
    """aiohttp's low-level server (no Application: one handler, no middlewares) with our own error answers."""

    def __init__(self, door: Door, metrics: Metrics, logger: FilteringBoundLogger, *, keepalive_s: float) -> None:
        super().__init__(
            door,
            handler_cancellation=True,  # or a client that leaves while it waits would never be noticed
            access_log=None,
            keepalive_timeout=keepalive_s,
            auto_decompress=False,
            max_line_size=MAX_HEAD_LINE_BYTES,
            max_field_size=MAX_HEAD_LINE_BYTES,
        )
        self.metrics = metrics
        self.log = logger
        self.leaving = False

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
        for transport in tuple(self._connections.values()):
            transport.abort()

    def _make_request(self, message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
        return _Request(message, payload, protocol, writer, task, self._loop)

    def __call__(self) -> RequestHandler:
        """A handler for one new connection."""
        return _Front(self, loop=self._loop, **self._kwargs)


class _Request(web.BaseRequest):
    """A request whose answer says `Connection: close` while the proxy takes its leave: clients then come again on a
    new connection, to whoever serves by then, and none is caught by the closing."""

    @property
    def keep_alive(self) -> bool:
        server = self.protocol._manager
        return super().keep_alive and not (isinstance(server, FrontServer) and server.leaving)


class _Front(RequestHandler):
    """Answers what aiohttp itself refuses (broken framing, oversized heads) and what we failed to catch."""

    __slots__ = ("_body",)

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._body: StreamReader | None = None  # of the newest request

    def data_received(self, data: bytes) -> None:
        """Take bytes. Where they break the framing of a body under way its reader is told: aiohttp only queues a
        refusal behind that request, which would wait for the rest of its body until its time is over."""
        super().data_received(data)
        for message, body in self._messages:
            if not isinstance(message, _ErrInfo):
                self._body = body
            elif self._body is not None and not self._body.is_eof():
                self._body.set_exception(web.RequestPayloadError("the framing of the body is broken"))
                self._body.feed_eof()

    def _pause_reading_for_buffer(self) -> None:
        """Give up a client that sends on and on before it is answered (dozens of requests in a row, or what follows an
        upgrade): a connection that is not read does not tell either when the client has left."""
        if self.transport is not None:
            self.transport.abort()

    def is_busy(self) -> bool:
        """Whether a request has come and its answer is not written yet."""
        return self._request_in_progress or bool(self._messages)

    def leave(self) -> None:
        """Close the connection as soon as no request is on it. One whose body is still coming is let come: a closing
        connection takes no more bytes, and `Connection: close` on its answer ends it then."""
        if self._body is not None and not self._body.is_eof():
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
        error: CrossoverError = CrossoverError("the proxy failed on this request; its log has the reason")
        if status < 500:
            error = InvalidRequest("the request is not valid HTTP/1.1, or its head is too large")
            error.status = status
        self._record(error, exc, request.remote)
        if request.writer.output_size > 0:
            raise ConnectionError("an answer had begun and cannot be replaced by an error")
        return error_response(error, Dialect.PLAIN, close=True)

    def _record(self, error: CrossoverError, cause: BaseException | None, client: str | None) -> None:
        server = self._manager
        if not isinstance(server, FrontServer):
            return
        server.metrics.refused(error.code)
        if error.side is Side.CLIENT:
            server.log.info("request_refused", client=client, status=error.status, code=error.code)
        else:
            server.log.error("request_failed", client=client, status=error.status, exc_info=cause)

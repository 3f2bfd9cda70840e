"""The client port: allow-list, the proxy's own health answers, and every error of ours in the right shape.

Connections and framing are in front.py; what happens to a request that is let in is in relay.py and inform.py.
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web
from structlog.typing import FilteringBoundLogger

from proxy.errors import BodiesFull, CrossoverError, KeyRefused, ShuttingDown, UpgradeRefused
from proxy.gate import Gate
from proxy.inform import Informer
from proxy.metrics import Metrics
from proxy.model import Dialect
from proxy.protocol import headers, routes
from proxy.protocol.routes import EngineKind, Route
from proxy.relay import Relay
from proxy.wire.downstream import SERVER, error_response


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
        self.gate = Gate()
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
            if own is None:
                own = self.gate.preflight(request, self.engines)
            if own is not None:
                return own
            client_name = self.gate.admit(request)
            if upgrades(request):
                raise UpgradeRefused("upgrades such as WebSocket are not tunnelled; use the HTTP routes")
            route = self._find(request)
            dialect = route.dialect
            if self.closed:
                raise ShuttingDown("the proxy is shutting down; send the request to another instance or try again")
            if route.counts:
                return await self._relay.carry(request, route, request_id, client_name)
            return await self._answer(request, route, request_id, client_name)
        except KeyRefused as error:
            return self._refuse(error, self._dialect(request), request_id, request)
        except CrossoverError as error:
            if request.writer.output_size > 0:
                raise  # an answer has gone out already: the connection ends, and the log has the reason
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

    def _dialect(self, request: web.BaseRequest) -> Dialect:
        """Of one that is not let in, which is told so even where its path is not served."""
        try:
            return self._find(request).dialect
        except CrossoverError:
            return Dialect.PLAIN

    async def _answer(
        self, request: web.BaseRequest, route: Route, request_id: str, client_name: str | None
    ) -> web.StreamResponse:
        response = await self._informer.answer(request, route, request_id, client_name)
        named = {} if client_name is None else {"client_name": client_name}
        self._logger.info(
            "question_answered",
            request_id=request_id,
            client=request.remote,
            method=request.method,
            route=route.template,
            status=response.status,
            **named,
        )
        return response

    def _refuse(
        self, error: CrossoverError, dialect: Dialect, request_id: str, request: web.BaseRequest
    ) -> web.StreamResponse:
        self._metrics.refused(error.code)
        said = {"request_id": request_id, "client": request.remote, "status": error.status, "code": error.code}
        self._logger.info("request_refused", **said)
        # A body that has not ended closes the connection as well, whatever the answer (front.py).
        close = isinstance(error, ShuttingDown | UpgradeRefused | BodiesFull)
        return error_response(error, dialect, [("x-request-id", request_id)], close=close)


def upgrades(request: web.BaseRequest) -> bool:
    """Whether a request is of no use without its upgrade. The offer of HTTP/2, which Java's own client makes with every
    first request, may be passed over (RFC 9110, section 7.8)."""
    asked = any("upgrade" in value.lower() for value in request.headers.getall("Connection", []))
    return asked and request.headers.get("Upgrade", "").strip().lower() not in ("", "h2c")

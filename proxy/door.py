"""The client port: allow-list, the proxy's own health answers, and every error of ours in the right shape.

Connections and framing are in front.py; what happens to a request that is let in is in relay.py and inform.py.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain

import orjson
from structlog.typing import FilteringBoundLogger

from proxy.errors import (
    BodiesFull,
    CrossoverError,
    KeyRefused,
    MethodNotAllowed,
    ShuttingDown,
    UpgradeRefused,
    without_frames,
)
from proxy.gate import Gate
from proxy.inform import Informer
from proxy.metrics import Metrics
from proxy.model import Dialect
from proxy.protocol import headers, routes
from proxy.protocol.routes import EngineKind, Route
from proxy.relay import Relay
from proxy.wire.downstream import Reply, error_reply, stamps_of
from proxy.wire.request import Request, upgrades

# A request id of our own: 128 random bits, which two proxies never give twice.
ID_CHARS = 32
_PLAIN = Dialect.PLAIN
_OWN_PATHS = routes.LIVENESS_PATHS | routes.READINESS_PATHS
_READING = frozenset({"GET", "HEAD"})


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
        engines: tuple[EngineKind, ...],
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
        # All of C's own: a generator would be a call for each request.
        self._ids = chain.from_iterable(iter(_new_ids, []))

    @property
    def engines(self) -> tuple[EngineKind, ...]:
        """See the class."""
        return self._engines

    @engines.setter
    def engines(self, engines: tuple[EngineKind, ...]) -> None:
        self._engines = engines
        self._known = routes.exact(engines)

    async def __call__(self, request: Request) -> Reply | None:
        """Answer one request: with a reply, or None where an answer was passed on to the client."""
        named = request.by_name
        came = None if named.keys().isdisjoint(headers.REQUEST_ID_NAMES) else headers.request_id(named)
        request_id = next(self._ids) if came is None else came.decode()
        dialect = _PLAIN
        try:
            # Most requests name a row of the allow-list: none of the proxy's own paths, and no method of a preflight.
            route = self._known.get((request.method, request.target))
            if route is None and (own := self._own(request)) is not None:
                return own
            client_name = None if self.gate.clients is None else self.gate.admit(request)
            if b"upgrade" in named and upgrades(request):
                raise UpgradeRefused("upgrades such as WebSocket are not tunnelled; use the HTTP routes")
            if route is None:
                route = self._find(request.method, request.target)
            dialect = route.dialect
            if self.closed:
                raise ShuttingDown("the proxy is shutting down; send the request to another instance or try again")
            if route.counts:
                return await self._relay.carry(request, route, request_id, client_name)
            return await self._answer(request, route, request_id, client_name)
        except (KeyRefused, MethodNotAllowed) as error:
            return self._refuse(error, self._dialect(request), request_id, request)
        except CrossoverError as error:
            return self._refuse(without_frames(error), dialect, request_id, request)

    def _own(self, request: Request) -> Reply | None:
        """The answer that needs no key: of the proxy's own paths, and to a browser's preflight."""
        if request.method not in _READING:
            return self.gate.preflight(request, self.engines)
        path = request.target.partition("?")[0]
        if path in routes.LIVENESS_PATHS:
            return _json(200, {"status": "alive"})
        if path in routes.READINESS_PATHS:
            state = self._readiness()
            said = {"status": "ready" if state.ready else "not_ready", "reason": state.reason}
            return _json(200 if state.ready else 503, said)
        return None

    def _find(self, method: str, target: str) -> Route:
        if target.partition("?")[0] in _OWN_PATHS:
            raise MethodNotAllowed("this path is served with GET, HEAD only; use one of these", allow=_READING)
        route: Route | None = None
        for engine in self.engines:
            found = routes.find(engine, method, target)
            route = route or found
        assert route is not None
        return route

    def _dialect(self, request: Request) -> Dialect:
        """Of one that is not let in, or that comes with a method which its path is not served with."""
        method = request.method
        for _ in range(2):
            try:
                return self._find(method, request.target).dialect
            except MethodNotAllowed as error:
                method = min(error.allow)
            except CrossoverError:
                break
        return Dialect.PLAIN

    async def _answer(self, request: Request, route: Route, request_id: str, client_name: str | None) -> Reply:
        response = await self._informer.answer(request, route, request_id, client_name)
        named = {} if client_name is None else {"client_name": client_name}
        self._logger.info(
            "question_answered",
            request_id=request_id,
            client=request.peer or None,
            method=request.method,
            route=route.template,
            status=response.status,
            **named,
        )
        return response

    def _refuse(self, error: CrossoverError, dialect: Dialect, request_id: str, request: Request) -> Reply:
        self._metrics.refused(error.code)
        said = {"request_id": request_id, "client": request.peer or None, "status": error.status, "code": error.code}
        self._logger.info("request_refused", **said)
        # A body that has not ended closes the connection as well, whatever the answer (front.py).
        close = isinstance(error, ShuttingDown | UpgradeRefused | BodiesFull)
        return error_reply(error, dialect, stamps_of(request_id, None), close=close)


def _new_ids() -> list[str]:
    """Random request ids. The system is asked for many at a time: asking takes longer than the rest."""
    digits = os.urandom(4096).hex()
    return [digits[at : at + ID_CHARS] for at in range(0, len(digits), ID_CHARS)]


def _json(status: int, value: dict[str, str]) -> Reply:
    return Reply(status, [(b"Content-Type", b"application/json; charset=utf-8")], orjson.dumps(value))

"""Who may pass the clients' port: whose key a request carries, and what pages of other origins may do and read.

The rules are in protocol/credentials.py and protocol/cors.py; what becomes of a request that is let in, in door.py.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from aiohttp import web

from proxy.errors import CrossoverError, KeyRefused, MethodNotAllowed
from proxy.protocol import cors, routes
from proxy.protocol.credentials import ClientKey, client_of, presented_keys
from proxy.protocol.routes import EngineKind
from proxy.wire.downstream import SERVER


class Preflight(web.Response):
    """An answer that is about a page's next request, not to be taken for an engine's."""


@dataclass(frozen=True, slots=True)
class Gate:
    """`clients` may come in, all where it is None. Pages of `origins` may read answers, none where it is empty."""

    clients: tuple[ClientKey, ...] | None = None
    origins: tuple[str, ...] = ()

    def admit(self, request: web.BaseRequest) -> str | None:
        """The name of the client whose key a request carries, None where no key is asked for. Raises KeyRefused."""
        if self.clients is None:
            return None
        keys = presented_keys(request.headers.items())
        name = client_of(self.clients, keys)
        if name is not None:
            return name
        if keys:
            raise KeyRefused("the API key is not known here; check it, or ask the operator for one")
        raise KeyRefused("an API key is needed; send it as `Authorization: Bearer KEY`, or as x-api-key")

    def preflight(self, request: web.BaseRequest, engines: Iterable[EngineKind]) -> Preflight | None:
        """The answer to a browser that asks on behalf of a page before it sends the page's request; None where nobody
        asks so, the page is not let in, or the path is not served. It carries no key, so none is asked for."""
        method = request.headers.get("Access-Control-Request-Method")
        allowed = cors.allowed_origin(self.origins, request.headers.get("Origin"))
        if request.method != "OPTIONS" or method is None or "Origin" not in request.headers or allowed is None:
            return None
        methods = _methods(request.raw_path, method, engines)
        if not methods:
            return None
        asked = request.headers.get("Access-Control-Request-Headers")
        return Preflight(status=204, headers=[("Server", SERVER), *cors.preflight_headers(methods, asked)])

    def stamp(self, request: web.BaseRequest, response: web.StreamResponse) -> None:
        """Tell the browser which page may read an answer of any kind. An engine's own word gives way to the setting."""
        if not self.origins:
            return
        if not isinstance(response, Preflight):
            for name in [name for name in response.headers if name.lower().startswith(cors.PREFIX)]:
                response.headers.popall(name, None)
        for name, value in cors.answer_headers(self.origins, request.headers.get("Origin")):
            response.headers[name] = value
        if cors.varies_by_origin(self.origins, response.headers.getall("Vary", ())):
            response.headers.add("Vary", "Origin")


def _methods(raw_path: str, method: str, engines: Iterable[EngineKind]) -> frozenset[str]:
    """The methods of a path on all engines; none where one of them does not serve it."""
    if raw_path.partition("?")[0] in routes.LIVENESS_PATHS | routes.READINESS_PATHS:
        return frozenset({"GET", "HEAD"})
    return frozenset.intersection(*(_methods_on(engine, raw_path, method) for engine in engines))


def _methods_on(engine: EngineKind, raw_path: str, method: str) -> frozenset[str]:
    try:
        return routes.find(engine, method, raw_path).methods
    except MethodNotAllowed as error:
        return error.allow
    except CrossoverError:
        return frozenset()

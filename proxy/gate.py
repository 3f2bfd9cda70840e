"""Who may pass the clients' port: whose key a request carries, and what pages of other origins may do and read.

The rules are in protocol/credentials.py and protocol/cors.py; what becomes of a request that is let in, in door.py.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from proxy.errors import CrossoverError, KeyRefused, MethodNotAllowed
from proxy.protocol import cors, routes
from proxy.protocol.credentials import ClientKey, client_of, presented_keys
from proxy.protocol.fields import Fields
from proxy.protocol.routes import EngineKind
from proxy.wire.downstream import Reply
from proxy.wire.request import Request

_OWN_PATHS = routes.LIVENESS_PATHS | routes.READINESS_PATHS


@dataclass(frozen=True, slots=True)
class Gate:
    """`clients` may come in, all where it is None. Pages of `origins` may read answers, none where it is empty."""

    clients: tuple[ClientKey, ...] | None = None
    origins: tuple[bytes, ...] = ()

    def admit(self, request: Request) -> str | None:
        """The name of the client whose key a request carries, None where no key is asked for. Raises KeyRefused."""
        if self.clients is None:
            return None
        keys = presented_keys(request.fields)
        name = client_of(self.clients, keys)
        if name is not None:
            return name
        if keys:
            raise KeyRefused("the API key is not known here; check it, or ask the operator for one")
        raise KeyRefused("an API key is needed; send it as `Authorization: Bearer KEY`, or as x-api-key")

    def preflight(self, request: Request, engines: Iterable[EngineKind]) -> Reply | None:
        """The answer to a browser that asks on behalf of a page before it sends the page's request; None where nobody
        asks so, the page is not let in, or the path is not served. It carries no key, so none is asked for."""
        if request.method != "OPTIONS":
            return None
        said = request.by_name
        origin, method = said.get(b"origin"), said.get(b"access-control-request-method")
        if origin is None or method is None or cors.allowed_origin(self.origins, origin) is None:
            return None
        methods = _methods(request.target, method.decode("latin-1"), engines)
        if not methods:
            return None
        return Reply(204, cors.preflight_fields(methods, said.get(b"access-control-request-headers")))

    def stamp(self, request: Request, fields: Fields) -> Fields:
        """The fields of an answer of any kind that also tell the browser which page may read it. An engine's own word
        gives way to the setting."""
        if not self.origins:
            return fields
        # No engine is asked OPTIONS: what such an answer says to browsers is a preflight's, and ours.
        if request.method != "OPTIONS":
            fields = [field for field in fields if not field[0].lower().startswith(cors.PREFIX)]
        stamped = fields + cors.answer_fields(self.origins, request.by_name.get(b"origin"))
        if cors.varies_by_origin(self.origins, [value for name, value in fields if name.lower() == b"vary"]):
            stamped.append((b"Vary", b"Origin"))
        return stamped


def _methods(target: str, method: str, engines: Iterable[EngineKind]) -> frozenset[str]:
    """The methods of a path on all engines; none where one of them does not serve it."""
    if target.partition("?")[0] in _OWN_PATHS:
        return frozenset({"GET", "HEAD"})
    return frozenset.intersection(*(_methods_on(engine, target, method) for engine in engines))


def _methods_on(engine: EngineKind, target: str, method: str) -> frozenset[str]:
    try:
        return routes.find(engine, method, target).methods
    except MethodNotAllowed as error:
        return error.allow
    except CrossoverError:
        return frozenset()

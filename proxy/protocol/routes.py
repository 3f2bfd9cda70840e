"""Finds the row of the allow-list that a request target names, or says why there is none.

Not here: the rows (allowlist.py) and forwarding. The target is only looked at: what goes upstream is the target as it
came, byte for byte, so nothing is normalised and whatever an engine might read otherwise than we do is refused.
"""

import re
from collections.abc import Iterable
from urllib.parse import unquote_to_bytes

from proxy.errors import InvalidRequest, MethodNotAllowed, RouteRefused, UnknownRoute, UpgradeRefused
from proxy.protocol.allowlist import (
    LIVENESS_PATHS,
    READINESS_PATHS,
    REFUSED,
    REFUSED_PREFIXES,
    ROUTES,
    STATEFUL_PREFIX,
    UPGRADE_PATHS,
    EngineKind,
    Route,
    RouteClass,
)

__all__ = ["LIVENESS_PATHS", "READINESS_PATHS", "EngineKind", "Route", "RouteClass", "exact", "find"]

_UNCLEAN_QUERY = re.compile(r"[\x00-\x20\x7f#]")
_UNCLEAN_PATH = re.compile(r"[^\x21-\x7e]|[\\#]|%(?![0-9A-Fa-f]{2})")
# C0 and C1 begin no character in UTF-8: who decodes them all the same reads ASCII, a dot or a slash perhaps.
_UNCLEAN_DECODED = re.compile(rb"[\x00-\x1f\x7f\\\xc0\xc1]")

# Whoever is behind an engine's port decodes once, some gateways twice; each further round costs time for nobody's good.
MAX_ENCODINGS = 4

_EXACT = {engine: {row.template: row for row in rows if "{" not in row.template} for engine, rows in ROUTES.items()}
_UNDER = {
    engine: tuple((row.template[: row.template.index("{")], row) for row in rows if "{" in row.template)
    for engine, rows in ROUTES.items()
}


def find(engine: EngineKind, method: str, raw_path: str) -> Route:
    """The route of a request: `raw_path` is the request target as received, query included; `method` is upper case.

    Raises UnknownRoute (not on the list, or a path that could be read in two ways), InvalidRequest (a target that is
    not a clean path), RouteRefused (an operator's route), MethodNotAllowed, or UpgradeRefused (a WebSocket route).
    """
    path, asked, query = raw_path.partition("?")
    if asked and _UNCLEAN_QUERY.search(query):
        raise InvalidRequest("the query holds a control character, a space or '#'; percent-encode it")
    route = _EXACT[engine].get(path)
    if route is None:
        route = _find_under(engine, path)
    if method not in route.methods:
        allowed = ", ".join(sorted(route.methods))
        raise MethodNotAllowed(f"this path is served with {allowed} only; use one of these", allow=route.methods)
    return route


def exact(engines: Iterable[EngineKind]) -> dict[tuple[str, str], Route]:
    """What `find` gives for the first of `engines`, by method and target, of each target that is a path of the table
    word for word and that all of them serve with the method."""
    first, *others = (_EXACT[engine] for engine in engines)
    return {
        (method, path): row
        for path, row in first.items()
        for method in row.methods
        if all(path in other and method in other[path].methods for other in others)
    }


def _find_under(engine: EngineKind, path: str) -> Route:
    """The route of a path that is not in the table word for word."""
    _require_clean(path)
    _refuse_known(engine, path)
    for prefix, route in _UNDER[engine]:
        if len(path) > len(prefix) and path.startswith(prefix) and not path.endswith("/"):
            return route
    raise UnknownRoute(_unknown(engine, path))


def _require_clean(path: str) -> None:
    """Refuses a path that engine and proxy might read differently, however often it is percent-encoded."""
    if not path.startswith("/"):
        raise InvalidRequest("the request target must be a path that begins with '/'; send no scheme or host in it")
    if _UNCLEAN_PATH.search(path):
        raise InvalidRequest("the path holds a character that must be percent-encoded, or a broken percent-encoding")
    decoded = path.encode()
    for _ in range(MAX_ENCODINGS):
        before, decoded = decoded, unquote_to_bytes(decoded)
        if _UNCLEAN_DECODED.search(decoded):
            raise InvalidRequest(
                "the path holds a control character, a backslash or broken UTF-8, plain or percent-encoded; remove it"
            )
        if _climbs(decoded):
            raise UnknownRoute("the path holds an empty or a dot segment; send the plain path")
        if decoded == before:
            return
    raise InvalidRequest("the path is percent-encoded several times over; encode it once")


def _climbs(path: bytes) -> bool:
    """Whether a segment is empty or made of dots, its parameters (`..;x`) aside; a slash may stand at the end."""
    names = [segment.partition(b";")[0] for segment in path.removesuffix(b"/").split(b"/")[1:]]
    return any(name in {b"", b".", b".."} for name in names)


def _refuse_known(engine: EngineKind, path: str) -> None:
    """Refuses the paths that exist on the engine and are not for clients, each with its own reason."""
    if path in REFUSED[engine] or path.startswith(REFUSED_PREFIXES[engine]):
        raise RouteRefused("this route controls the engine for everybody; call the engine itself, not the proxy")
    if path in UPGRADE_PATHS:
        raise UpgradeRefused("WebSocket routes are not tunnelled; connect to the engine itself")
    if path.startswith(STATEFUL_PREFIX) and path != STATEFUL_PREFIX and path.rstrip("/") not in _EXACT[engine]:
        raise RouteRefused(
            "stored responses live in the memory of the one engine that made them, and sticky routing is not available"
            " yet; keep the conversation on the client and send it whole"
        )


def _unknown(engine: EngineKind, path: str) -> str:
    """What to do about a path that is not served; the path itself is never quoted."""
    if path.rstrip("/") in _EXACT[engine]:
        return "this path is served without its trailing slash; remove the slash"
    for other in EngineKind:
        if other is not engine and path in _EXACT[other]:
            return f"this path exists on {other} engines only, and the backends here run {engine}"
    return "this path is not served; check it against the API, for example /v1/chat/completions"

"""Decides which headers cross the proxy, in either direction. Names' case, order and repetition are kept.

Not here: the framing of bodies (Content-Length and chunks), which the wire decides, and the proxy's own stamps.
"""

import re
from collections.abc import Iterable

Pairs = Iterable[tuple[str, str]]

HOP_BY_HOP = frozenset(
    {
        "connection",
        "proxy-connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers that speak of one connection only (RFC 9110, section 7.6.1); Connection may name more."""

REQUEST_ID_NAMES = ("x-request-id", "x-correlation-id", "x-trace-id", "request-id")
"""Where a client or a gateway may have put a request id, the first that is usable counts."""

OWN_PREFIX = "x-crossover-"
"""Headers of the proxy's own: from a client they are instructions to us, never to an engine."""

# Said anew for the upstream connection, or (HTTP2-Settings, Expect) only between the client and us.
_REPLACED = frozenset({"host", "content-length", "expect", "http2-settings", "x-request-id", "x-forwarded-for"})
_KEYS = frozenset({"authorization", "x-api-key"})
# Where a client's key may be that is for the proxy alone. A cookie was set by the proxy's origin, for nobody behind it.
_PROXY_KEYS = _KEYS | {"api-key", "cookie"}
# A client may not use Connection to hide where a request came from, nor cut away what frames the body.
_NOT_NAMEABLE = frozenset({"x-forwarded-for", "content-length", "host"})
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
# Line ends would become headers of their own, and no control character but the tab may stand in one; surrogates stand
# for bytes that are not UTF-8, which the wire would drop one by one, and a value cut down says something else.
_UNSENDABLE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")
_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")


def upstream_headers(
    pairs: Pairs,
    *,
    host: str,
    api_key: str | None,
    request_id: str,
    peer: str | None,
    drop_client_key: bool = False,
) -> list[tuple[str, str]]:
    """The request headers that an engine gets; Content-Length or its absence is left to the wire.

    `api_key` takes the place of the client's key; without it the client's passes, unless `drop_client_key` (the
    client's key was meant for the proxy; its cookies go too). `peer` is the client's address, appended to
    X-Forwarded-For.
    """
    pairs = list(pairs)
    dropped = HOP_BY_HOP | _REPLACED | named_by_connection(pairs)
    if drop_client_key:
        dropped |= _PROXY_KEYS
    elif api_key:
        dropped |= _KEYS
    kept = [pair for pair in pairs if (name := pair[0].lower()) not in dropped and not name.startswith(OWN_PREFIX)]
    sent = [("Host", host), *kept]
    if api_key:
        sent.append(("Authorization", f"Bearer {api_key}"))
    if hops := _hops(pairs, peer):
        sent.append(("X-Forwarded-For", hops))
    sent.append(("X-Request-ID", request_id))
    return [pair for pair in sent if _sendable(pair)]


def downstream_headers(pairs: Pairs) -> list[tuple[str, str]]:
    """The answer headers that a client gets: all but the hop-by-hop ones. Content-Length is kept."""
    pairs = list(pairs)
    dropped = HOP_BY_HOP | named_by_connection(pairs)
    return [pair for pair in pairs if pair[0].lower() not in dropped and _sendable(pair)]


def named_by_connection(pairs: Pairs) -> frozenset[str]:
    """Lower-case names that the Connection headers say are for this hop only."""
    values = [value for name, value in pairs if name.lower() == "connection"]
    names = {option.strip().lower() for value in values for option in value.split(",")}
    return frozenset(names - _NOT_NAMEABLE)


def request_id(pairs: Pairs) -> str | None:
    """The request id that came along: 1 to 128 visible ASCII characters, None where no header has such a one."""
    found: dict[str, str] = {}
    for name, value in pairs:
        lower = name.lower()
        if lower in REQUEST_ID_NAMES and lower not in found and _REQUEST_ID.fullmatch(value):
            found[lower] = value
    return next((found[name] for name in REQUEST_ID_NAMES if name in found), None)


def _hops(pairs: Pairs, peer: str | None) -> str:
    """One X-Forwarded-For line: all that came, in order, then our own peer."""
    came = [value.strip() for name, value in pairs if name.lower() == "x-forwarded-for"]
    safe = [hops for hops in (*came, peer or "") if hops and not _UNSENDABLE.search(hops)]
    return ", ".join(safe)


def _sendable(pair: tuple[str, str]) -> bool:
    """Whether a header can be written without becoming something else: a token for a name, UTF-8 without line ends for
    a value."""
    return _TOKEN.fullmatch(pair[0]) is not None and _UNSENDABLE.search(pair[1]) is None

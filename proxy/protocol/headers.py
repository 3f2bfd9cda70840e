"""Decides which fields cross the proxy, in either direction. Names' case, order and repetition are kept.

Nothing is decoded on the way. Not here: the framing of answers' bodies, which the wire decides, and the proxy's own
stamps.
"""

import re
from operator import itemgetter

from proxy.errors import InvalidRequest
from proxy.model import Role
from proxy.protocol.fields import Fields, raw

Keys = frozenset[tuple[bytes, bytes]]

HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"close",  # no field, but reserved, so that Connection's most frequent option can never name one
        b"proxy-connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
"""Fields that speak of one connection only (RFC 9110, section 7.6.1); Connection may name more."""

REQUEST_ID_NAMES = (b"x-request-id", b"x-correlation-id", b"x-trace-id", b"request-id")
"""Where a client or a gateway may have put a request id, the first that is usable counts."""

OWN_PREFIX = b"x-crossover-"
"""Fields of the proxy's own: from a client they are instructions to us, never to an engine."""

MAX_NAMES = 1024
"""Names whose kind is remembered. Clients choose names, so the memory is emptied when it is full; all clients together
use some dozens of names, and what is forgotten costs a few microseconds to find out again."""

MAX_NAME_BYTES = 64
"""A longer name is judged anew each time: the longest that clients send has half of this."""

_ASKED = {role.value.encode(): role for role in Role}
# Said anew for the upstream connection, or (HTTP2-Settings, Expect) only between the client and us.
_REPLACED = frozenset({b"host", b"content-length", b"expect", b"http2-settings", b"x-request-id"})
# What clients of the several APIs put a key in; a cookie is one to whoever set it.
_KEYS = frozenset({b"authorization", b"x-api-key", b"api-key", b"x-goog-api-key", b"cookie"})
# A client may not use Connection to hide where a request came from, nor cut away what frames the body.
_NOT_NAMEABLE = frozenset({b"x-forwarded-for", b"content-length", b"host"})
# Connection's values that name nothing beyond what never crosses: nearly all there are.
_USUAL = frozenset({b"", b"keep-alive", b"Keep-Alive", b"close", b"Close"})
_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
# Line ends would become fields of their own, and no control character but the tab may stand in one. Bytes above 0x7f
# are allowed (RFC 9110, section 5.5), whatever they mean.
_UNSENDABLE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_SENDABLE = bytes({*range(0x100)} - {*range(0x09), *range(0x0A, 0x20), 0x7F})
_VALUE = itemgetter(1)
_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}")

# What a name says of its field. One that stays here crosses in neither direction.
_STAYS, _CONNECTION, _REPLACES, _HOPS, _KEY, _PASSES = range(6)


class _Names(dict[bytes, tuple[int, bytes]]):
    """By name as it came: the kind of its field, and how its line begins, the end of the line before included."""

    def __missing__(self, name: bytes) -> tuple[int, bytes]:
        found = _kind(name), b"\r\n" + name + b": "
        if len(name) <= MAX_NAME_BYTES:
            if len(self) >= MAX_NAMES:
                self.clear()
            self[name] = found
        return found


_NAMES = _Names()


def _kind(name: bytes) -> int:
    lower = name.lower()
    if lower == b"connection":
        return _CONNECTION
    if lower in HOP_BY_HOP or not _TOKEN.fullmatch(name):
        return _STAYS
    if lower in _REPLACED or lower.startswith(OWN_PREFIX):
        return _REPLACES
    if lower == b"x-forwarded-for":
        return _HOPS
    return _KEY if lower in _KEYS else _PASSES


def upstream_head(
    method: str,
    target: str,
    fields: Fields,
    *,
    host: bytes,
    api_key: bytes | None,
    request_id: bytes,
    peer: bytes,
    drop_client_key: bool = False,
    attempt: bytes = b"",
    body_bytes: int | None = None,
) -> bytes:
    """The head of a request as an engine gets it, from the request line to the empty line.

    `target` is one that routes.py lets pass. `api_key` takes the place of the client's key, cookies included; without
    it the client's passes, unless `drop_client_key` (the client's key was meant for the proxy). `peer` is the client's
    address, appended to X-Forwarded-For, b"" where it is not known; `attempt` is left out where it is b"",
    Content-Length where `body_bytes` is None. Raises InvalidRequest where a control character stands in method or
    target; a field that holds one is left out.
    """
    pieces = [b"", raw(f"{method} {target} HTTP/1.1"), b"\r\nHost: ", host]
    hops = _add_kept(pieces, fields, keys_pass=not (api_key or drop_client_key))
    if api_key:
        pieces += (b"\r\nAuthorization: Bearer ", api_key)
    if forwarded := _forwarded(hops, peer) if hops else peer:
        pieces += (b"\r\nX-Forwarded-For: ", forwarded)
    pieces += (b"\r\nX-Request-ID: ", request_id)
    if attempt:
        pieces += (b"\r\nX-Crossover-Attempt: ", attempt)
    if body_bytes is not None:
        pieces += (b"\r\nContent-Length: ", b"%d" % body_bytes)
    pieces += (b"\r\n\r\n", b"")
    head = b"".join(pieces)
    # Of a head that may be sent nothing is left but its line ends: one before each field, two at its end.
    return head if len(head.translate(None, _SENDABLE)) == len(pieces) else _cleaned(pieces)


def _add_kept(pieces: list[bytes], fields: Fields, *, keys_pass: bool) -> list[bytes]:
    """Add the beginnings of lines and the values of all that crosses; returns what X-Forwarded-For says."""
    hops: list[bytes] = []
    names, add = _NAMES, pieces.append
    for name, value in fields:
        kind, line = names[name]
        if kind == _PASSES or (kind == _KEY and keys_pass):
            add(line)
            add(value)
        elif kind == _HOPS:
            hops.append(value)
        elif kind == _CONNECTION and value not in _USUAL:
            del pieces[4:]
            return _add_kept(pieces, _without_named(fields), keys_pass=keys_pass)
    return hops


def _forwarded(hops: list[bytes], peer: bytes) -> bytes:
    """One X-Forwarded-For line: all that came, in order, then our own peer."""
    safe = [hop for came in (*hops, peer) if (hop := came.strip()) and not _UNSENDABLE.search(hop)]
    return b", ".join(safe)


def _cleaned(pieces: list[bytes]) -> bytes:
    """The head without the fields that would become something else."""
    if _UNSENDABLE.search(pieces[1]):
        raise InvalidRequest("the request line holds a control character; percent-encode it")
    lines = zip(pieces[::2], pieces[1::2], strict=True)
    return b"".join([line + value for line, value in lines if not _UNSENDABLE.search(value)])


def downstream_fields(fields: Fields) -> Fields:
    """The fields of an answer that a client gets: all but the hop-by-hop ones. Content-Length is kept."""
    kept: Fields = []
    for field in fields:
        kind = _NAMES[field[0]][0]
        if kind > _CONNECTION:
            kept.append(field)
        elif kind == _CONNECTION and field[1] not in _USUAL:
            return downstream_fields(_without_named(fields))
    if b"".join(map(_VALUE, kept)).translate(None, _SENDABLE):
        return [field for field in kept if not _UNSENDABLE.search(field[1])]
    return kept


def asked_role(word: bytes | None) -> Role | None:
    """The role a client asks for by x-crossover-backend; anything else asks for nothing."""
    return None if word is None else _ASKED.get(word)


def keys(fields: Fields) -> Keys:
    """What of a client's fields may tell an engine who asks, names in lower case."""
    return frozenset((name.lower(), value) for name, value in _without_named(fields) if _NAMES[name][0] == _KEY)


def _without_named(fields: Fields) -> Fields:
    """Fields without Connection and those that it says are for this hop only."""
    values = [value for name, value in fields if name.lower() == b"connection"]
    named = {option.strip().lower() for value in values for option in value.split(b",")} - _NOT_NAMEABLE
    named.add(b"connection")
    return [field for field in fields if field[0].lower() not in named]


def request_id(by_name: dict[bytes, bytes]) -> bytes | None:
    """The request id that came along: 1 to 128 visible ASCII characters, None where no field has such a one. Of a name
    that comes several times the first usable value counts."""
    for name in REQUEST_ID_NAMES:
        value = by_name.get(name)
        if value is None:
            continue
        if _REQUEST_ID.fullmatch(value):
            return value
        for one in value.split(b", "):
            if _REQUEST_ID.fullmatch(one):
                return one
    return None

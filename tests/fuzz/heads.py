"""What stands in a request's head: targets that must never reach an operator's route, fields that must never smuggle.

The lists of what may not come out are written here anew, so that a gap in the product's own lists shows.
"""

import re
from urllib.parse import unquote

from fuzz.draws import Draws, require
from httptools import HttpRequestParser

from proxy.errors import CrossoverError
from proxy.protocol import headers, routes
from proxy.protocol.allowlist import REFUSED, REFUSED_PREFIXES, UPGRADE_PATHS, EngineKind
from proxy.protocol.fields import Fields, by_name

ENGINES = tuple(EngineKind)
METHODS = ("GET", "POST", "PUT", "HEAD", "DELETE", "OPTIONS", "CONNECT", "TRACE", "get")
# Readings of one path that are followed up; a path of a hundred bytes has a dozen.
MAX_READINGS = 200
# A shorter target may stand in a message by chance.
MIN_QUOTE_CHARS = 24
# Decoding once is what engines do; a gateway before an engine may do it once more.
MAX_DECODINGS = 2

ONE_HOP = {b"connection", b"proxy-connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade"}
ONE_HOP |= {b"proxy-authenticate", b"proxy-authorization"}
CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")


def route(data: bytes) -> None:
    """A path that is let through is no operator's route however an engine may read it."""
    draws = Draws(data)
    engine, method = draws.one_of(ENGINES), draws.one_of(METHODS)
    target = draws.rest().decode("utf-8", "surrogateescape")
    try:
        found = routes.find(engine, method, target)
    except CrossoverError as error:
        require(target not in error.message or len(target) < MIN_QUOTE_CHARS, "a refusal quotes the client's target")
        return
    require(method in found.methods, "a method was let through that the route does not have")
    for reading in readings(target.partition("?")[0]):
        require(not _is_operators(engine, reading), f"{target!r} may be read as {reading!r}")


def readings(path: str) -> set[str]:
    """Every way in which some server might read a path: decoded, folded, shortened, in any order."""
    found, fresh = {(path, 0)}, [(path, 0)]
    while fresh and len(found) < MAX_READINGS:
        text, decoded = fresh.pop()
        steps = {(step(text), decoded) for step in (_slashes, _once, _plain_segments, _resolved, str.lower)}
        if decoded < MAX_DECODINGS:
            steps.add((unquote(text), decoded + 1))
        fresh += steps - found
        found |= steps
    return {text for text, _ in found}


def _slashes(path: str) -> str:
    return path.replace("\\", "/")


def _once(path: str) -> str:
    return re.sub("/+", "/", path)


def _plain_segments(path: str) -> str:
    return "/".join(segment.partition(";")[0] for segment in path.split("/"))


def _resolved(path: str) -> str:
    kept: list[str] = []
    for segment in path.split("/")[1:]:
        if segment == "..":
            kept = kept[:-1]
        elif segment != ".":
            kept.append(segment)
    return "/" + "/".join(kept)


def _is_operators(engine: EngineKind, path: str) -> bool:
    bare = path.rstrip("/")
    under = REFUSED_PREFIXES[engine]
    return bare in REFUSED[engine] or bare in UPGRADE_PATHS or path.startswith(under)


def header_filter(data: bytes) -> None:
    """Neither way lets a hop-by-hop field, one that Connection names or a control character pass; what httptools reads
    in the head that goes upstream is what was kept; a second filtering changes nothing."""
    draws = Draws(data)
    flags = draws.byte()
    fields = [_field(line) for line in draws.rest().split(b"\n")]
    key = b"key" if flags & 1 else None
    drop = bool(flags & 2)

    def up(came: Fields, peer: bytes = b"") -> Fields:
        head = headers.upstream_head(
            "POST", "/", came, host=b"engine:1", api_key=key, request_id=b"id", peer=peer, drop_client_key=drop
        )
        return _Read(head).fields

    _require_upstream(fields, up(fields, b"9.9.9.9"), key=key, drop=drop)
    once = up(fields)
    require(up(once) == once, "filtering upstream fields twice changes them")
    down = headers.downstream_fields(fields)
    _require_clean(fields, down)
    require([field for field in fields if field in down] == down, "answer fields were changed or moved")
    require(headers.downstream_fields(down) == down, "filtering answer fields twice changes them")
    found = headers.request_id(by_name(fields))
    require(found is None or (0 < len(found) <= 128 and not re.search(rb"[^\x21-\x7e]", found)), "a bad request id")


def _field(line: bytes) -> tuple[bytes, bytes]:
    name, _, value = line.partition(b":")
    return name, value.strip(b" \t")


class _Read:
    """What a strict parser reads in one head; it raises for anything that is none."""

    def __init__(self, head: bytes) -> None:
        self.fields: Fields = []
        self._ended = False
        HttpRequestParser(self).feed_data(head)
        require(self._ended, "the head does not end")

    def on_header(self, name: bytes, value: bytes) -> None:
        self.fields.append((name, value))

    def on_headers_complete(self) -> None:
        self._ended = True


def _require_upstream(came: Fields, sent: Fields, *, key: bytes | None, drop: bool) -> None:
    _require_clean(came, sent)
    names = [name.lower() for name, _ in sent]
    require(names.count(b"host") == 1 and (b"Host", b"engine:1") in sent, "Host is not the engine's alone")
    require(names.count(b"x-forwarded-for") == 1, "X-Forwarded-For is not one line")
    hops = next(value for name, value in sent if name.lower() == b"x-forwarded-for")
    require(hops.endswith(b"9.9.9.9"), "our own peer is not last in X-Forwarded-For")
    require(names.count(b"x-request-id") == 1, "X-Request-ID is not one line")
    framing = {b"content-length", b"expect", b"http2-settings"}.intersection(names)
    require(not framing, f"{framing!r} of the client's connection passed")
    require(not any(name.startswith(b"x-crossover-") for name in names), "an instruction to us passed")
    keys = [value for name, value in sent if name.lower() in (b"authorization", b"x-api-key")]
    require(keys == [b"Bearer key"] if key else not (drop and keys), "the wrong key goes to the engine")


def _require_clean(came: Fields, passed: Fields) -> None:
    named = {
        part.strip().lower() for name, value in came if name.lower() == b"connection" for part in value.split(b",")
    }
    named -= {b"host", b"content-length", b"x-forwarded-for", b"x-request-id", b"authorization"}
    for name, value in passed:
        require(name.lower() not in ONE_HOP | named, f"{name!r} speaks of one connection only and passed")
        require(TOKEN.fullmatch(name) is not None, f"{name!r} is no field name and passed")
        require(CONTROL.search(value) is None, f"a control character passed in {name!r}")

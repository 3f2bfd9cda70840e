"""What stands in a request's head: targets that must never reach an operator's route, headers that must never smuggle.

The lists of what may not come out are written here anew, so that a gap in the product's own lists shows.
"""

import re
from urllib.parse import unquote

from fuzz.draws import Draws, require

from proxy.errors import CrossoverError
from proxy.protocol import headers, routes
from proxy.protocol.allowlist import REFUSED, REFUSED_PREFIXES, STATEFUL_PREFIX, UPGRADE_PATHS, EngineKind

ENGINES = tuple(EngineKind)
METHODS = ("GET", "POST", "PUT", "HEAD", "DELETE", "OPTIONS", "CONNECT", "TRACE", "get")
# Readings of one path that are followed up; a path of a hundred bytes has a dozen.
MAX_READINGS = 200
# A shorter target may stand in a message by chance.
MIN_QUOTE_CHARS = 24
# Decoding once is what engines do; a gateway before an engine may do it once more.
MAX_DECODINGS = 2

ONE_HOP = {"connection", "proxy-connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"}
ONE_HOP |= {"proxy-authenticate", "proxy-authorization"}
CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")


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
    under = (*REFUSED_PREFIXES[engine], STATEFUL_PREFIX)
    return bare in REFUSED[engine] or bare in UPGRADE_PATHS or path.startswith(under)


def header_filter(data: bytes) -> None:
    """Neither way lets a hop-by-hop header, a header that Connection names, a control character or a lone surrogate
    pass; a second filtering changes nothing."""
    draws = Draws(data)
    flags = draws.byte()
    pairs = [_pair(line) for line in draws.rest().split(b"\n")]
    key = "key" if flags & 1 else None
    drop = bool(flags & 2)

    def up(came: list[tuple[str, str]], peer: str | None = None) -> list[tuple[str, str]]:
        return headers.upstream_headers(
            came, host="engine:1", api_key=key, request_id="id", peer=peer, drop_client_key=drop
        )

    _require_upstream(pairs, up(pairs, "9.9.9.9"), key=key, drop=drop)
    once = up(pairs)
    require(up(once) == once, "filtering upstream headers twice changes them")
    down = headers.downstream_headers(pairs)
    _require_clean(pairs, down)
    require([pair for pair in pairs if pair in down] == down, "answer headers were changed or moved")
    require(headers.downstream_headers(down) == down, "filtering answer headers twice changes them")
    found = headers.request_id(pairs)
    require(found is None or (0 < len(found) <= 128 and not re.search(r"[^\x21-\x7e]", found)), "a bad request id")


def _pair(line: bytes) -> tuple[str, str]:
    name, _, value = line.partition(b":")
    return name.decode("utf-8", "surrogateescape"), value.strip(b" \t").decode("utf-8", "surrogateescape")


def _require_upstream(came: list[tuple[str, str]], sent: list[tuple[str, str]], *, key: str | None, drop: bool) -> None:
    _require_clean(came, sent)
    names = [name.lower() for name, _ in sent]
    require(names.count("host") == 1 and ("Host", "engine:1") in sent, "Host is not the engine's alone")
    require(names.count("x-forwarded-for") == 1, "X-Forwarded-For is not one line")
    hops = next(value for name, value in sent if name.lower() == "x-forwarded-for")
    require(hops.endswith("9.9.9.9"), "our own peer is not last in X-Forwarded-For")
    require(names.count("x-request-id") == 1, "X-Request-ID is not one line")
    framing = {"content-length", "expect", "http2-settings"}.intersection(names)
    require(not framing, f"{framing} of the client's connection passed")
    require(not any(name.startswith("x-crossover-") for name in names), "an instruction to us passed")
    keys = [value for name, value in sent if name.lower() in ("authorization", "x-api-key")]
    require(keys == ["Bearer key"] if key else not (drop and keys), "the wrong key goes to the engine")


def _require_clean(came: list[tuple[str, str]], passed: list[tuple[str, str]]) -> None:
    named = {part.strip().lower() for name, value in came if name.lower() == "connection" for part in value.split(",")}
    named -= {"host", "content-length", "x-forwarded-for", "x-request-id", "authorization"}
    for name, value in passed:
        require(name.lower() not in ONE_HOP | named, f"{name!r} speaks of one connection only and passed")
        require(TOKEN.fullmatch(name) is not None, f"{name!r} is no header name and passed")
        require(CONTROL.search(value) is None, f"a control character passed in {name}")
        value.encode("utf-8")  # a lone surrogate would raise: it stands for bytes that are no UTF-8

"""Streams in any pieces: the scanner's facts and the held bytes depend on the bytes alone, never on where they are cut.

Byte 0 chooses the dialect, byte 1 the cuts and byte 2 the limits; the rest is the stream. Not here: streams with a
meaning that is known beforehand (stories.py).
"""

import re
from collections.abc import Iterator

from fuzz.draws import Draws, patched, require

from proxy.model import Dialect
from proxy.protocol import hold, sse
from proxy.protocol.hold import EventHold
from proxy.protocol.sse import Scanner

DIALECTS = tuple(Dialect)
# Streams up to here, and of those one in eight, are also fed byte by byte: it takes longer than all else together.
MAX_SINGLE_BYTES = 100
SINGLE_EVERY = 8
# A limit this small is passed by a fuzzed event; the real ones never would be.
TINY_BYTES = 24
FACTS = ("first_content", "finished", "ended", "aborted", "error", "events", "gave_up", "usage")
LINE_END = re.compile(rb"\r\n|\r|\n")


def scanner(data: bytes) -> None:
    """Any cuts give the facts of the whole, memory stays bounded, and events and end are those of a plain reading."""
    dialect, seed, tiny, stream = _opened(data)
    if tiny:
        with patched(sse, "MAX_LINE_BYTES", TINY_BYTES):
            # Whole plain chunks are counted without looking for long lines, so giving up is the one fact that may vary.
            _require_same(dialect, stream, seed, ignored="gave_up")
        return
    found = _require_same(dialect, stream, seed)
    if dialect is not Dialect.OLLAMA:
        events, done = plain_reading(stream)
        require(found["events"] == events, "the scanner counts other events than a plain reading")
        require(bool(found["ended"]) >= done, "the scanner missed [DONE]")


def event_hold(data: bytes) -> None:
    """Bytes out are bytes in, what has passed ends at a boundary, and no more than the limit is held."""
    dialect, seed, tiny, stream = _opened(data)
    if tiny:
        with patched(hold, "HOLD_MAX_BYTES", TINY_BYTES):
            for cut in _cuttings(stream, seed):
                _held_at_end(dialect, cut)
        return
    for cut in _cuttings(stream, seed):
        rest = _held_at_end(dialect, cut)
        require(rest == stream[boundary(stream, dialect) :], "what is held is not what follows the last whole event")


def plain_reading(stream: bytes) -> tuple[int, bool]:
    """Events with data, and whether [DONE] came, read as the specification of event streams says it."""
    events, done, payload = 0, False, None
    lines = LINE_END.split(stream)
    for line in [*lines, b""]:
        if not line:
            events += bool(payload)
            payload = None
            continue
        name, _, value = (line if events else line.removeprefix(b"\xef\xbb\xbf")).partition(b":")
        if name == b"data":
            value = value.removeprefix(b" ")
            done = done or value.strip() == b"[DONE]"
            payload = value if payload is None else payload + b"\n" + value
    return events, done


def boundary(stream: bytes, dialect: Dialect) -> int:
    """Where the last whole event ends: behind an empty line, or behind a comment that stands between events."""
    if dialect is Dialect.PLAIN:
        return len(stream)
    if dialect is Dialect.OLLAMA:
        return stream.rfind(b"\n") + 1
    end = at = 0
    inside = False
    for mark in LINE_END.finditer(stream):
        line = stream[at : mark.start()]
        at = mark.end()
        inside = bool(line) and (inside or not line.startswith(b":"))
        end = end if inside else at
    return end


def _opened(data: bytes) -> tuple[Dialect, int, bool, bytes]:
    draws = Draws(data)
    return draws.one_of(DIALECTS), draws.byte(), draws.byte() % 4 == 3, draws.rest()


def _cuttings(stream: bytes, seed: int) -> Iterator[list[bytes]]:
    """The stream whole, in uneven pieces, and some byte by byte."""
    yield [stream]
    state, at, pieces = seed, 0, []
    while at < len(stream):
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        size = 1 + (state >> 16) % (1 + seed % 61)
        pieces.append(stream[at : at + size])
        at += size
    yield pieces
    if len(stream) <= MAX_SINGLE_BYTES and seed % SINGLE_EVERY == 0:
        yield [stream[at : at + 1] for at in range(len(stream))]


def _require_same(dialect: Dialect, stream: bytes, seed: int, ignored: str = "") -> dict[str, object]:
    first: dict[str, object] | None = None
    for pieces in _cuttings(stream, seed):
        found = _facts(dialect, pieces)
        found.pop(ignored, None)
        first = first or found
        require(found == first, f"other cuts, other facts: {found} and {first}")
    return first or {}


def _facts(dialect: Dialect, pieces: list[bytes]) -> dict[str, object]:
    one = Scanner(dialect)
    for piece in pieces:
        one.feed(piece)
        kept = len(one._line) + len(one._payload or b"")
        require(kept <= 2 * sse.MAX_LINE_BYTES, "the scanner keeps more than its limit")
    one.close()
    require(not one.finished or one.events > 0 or one.ended, "finished without an event")
    return {name: getattr(one, name) for name in FACTS}


def _held_at_end(dialect: Dialect, pieces: list[bytes]) -> bytes:
    held = EventHold(dialect)
    came_bytes, passed = 0, b""
    for piece in pieces:
        came_bytes += len(piece)
        fresh = held.feed(piece)
        passed += fresh
        rest = held.rest()
        require(len(passed) + len(rest) == came_bytes, "bytes were lost or made")
        require(len(rest) <= hold.HOLD_MAX_BYTES, "more is held than may be")
        whole = not fresh or held.overflowed or boundary(passed, dialect) == len(passed)
        require(whole, "what has passed ends inside an event")
    require(passed + held.rest() == b"".join(pieces), "bytes were changed or moved")
    return held.rest()

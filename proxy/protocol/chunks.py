"""Reads a body that comes in chunks (RFC 9112, section 7.1), cut anywhere, and strictly: what two readers could read
differently is a way to smuggle.

Not here: writing chunks, and what becomes of the payload.
"""

from enum import IntEnum
from functools import lru_cache

CRLF = b"\r\n"
# The one alphabet of sizes. `int` alone would also take signs, blanks, "0x" and underscores.
HEX = b"0123456789abcdefABCDEF"
# 64 bits: no body is larger, and a size is read in no time.
MAX_DIGITS = 16
NO_SIZE = -1
# A size line with its extension. Signed chunks, the longest in use, have some 90 bytes; engines send none.
MAX_LINE_BYTES = 256
# All trailer fields together. Engines send none, and they are dropped.
MAX_TRAILER_BYTES = 8192
# Chunks of events have a few hundred lengths, of which each stream has some dozens: to look a line up takes a fraction
# of the time of reading it.
MAX_SIZE_LINES = 1024
# Longer ones come seldom, and then it is their bytes that cost.
MAX_REMEMBERED_BYTES = 16384

_VISIBLE = b"\t" + bytes(range(0x20, 0x7F))
_FIELD_VALUE = _VISIBLE + bytes(range(0x80, 0x100))
_TOKEN = b"!#$%&'*+-.^_`|~" + bytes(range(0x30, 0x3A)) + bytes(range(0x41, 0x5B)) + bytes(range(0x61, 0x7B))


class _SizeLines(dict[int, bytes]):
    """By the length of a whole chunk: the size line it begins with, where its sender writes sizes as all do, in few and
    small digits. Bytes that begin with it and end as a chunk does are one whole chunk, whatever is between."""

    def __missing__(self, chunk_bytes: int) -> bytes:
        # A length that no chunk has gets a line that is longer than all the bytes: they do not begin with it.
        line = b"-" * (chunk_bytes + 1)
        most = len(b"%x" % chunk_bytes)
        for digits in (most, most - 1):
            size = chunk_bytes - digits - 2 * len(CRLF)
            if size > 0 and len(b"%x" % size) == digits:
                line = b"%x\r\n" % size
        if len(self) >= MAX_SIZE_LINES:
            self.clear()
        if chunk_bytes <= MAX_REMEMBERED_BYTES:
            self[chunk_bytes] = line
        return line


class _Awaited(IntEnum):
    """Which line comes next where no payload does."""

    SIZE = 0
    CLOSING = 1  # the empty one behind a payload
    TRAILER = 2


SIZE_LINES = _SizeLines()
_LIMITS_BYTES = {_Awaited.SIZE: MAX_LINE_BYTES, _Awaited.CLOSING: 0, _Awaited.TRAILER: MAX_TRAILER_BYTES}


class Chunks:
    """One body. `over`: it has ended, or `fault` says why it cannot be read; `surplus`: bytes came behind its end;
    `between`: nothing of a chunk has come that is not done with, so that one may begin."""

    __slots__ = ("_awaited", "_held", "_left", "_trailer_bytes", "between", "fault", "over", "surplus")

    def __init__(self) -> None:
        self.between = True
        self._awaited = _Awaited.SIZE
        self._left = 0
        self._held = b""
        self._trailer_bytes = 0
        self.over = False
        self.fault: str | None = None
        self.surplus = False

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """The payload of the next bytes, and before it these very bytes as far as they are whole chunks, without
        extensions, that have exactly this payload; b"" where they are not. Looks at nothing once `over`."""
        if not self.between:
            return b"", self._read(data)
        line = SIZE_LINES[len(data)]
        if data.startswith(line) and data.endswith(CRLF):
            return data, data[len(line) : -2]
        end, pieces = _whole_chunks(data)
        payload = b"".join(pieces)
        if end == len(data):
            return data, payload
        more = self._read(data[end:])
        return (b"", payload + more) if more else (data[:end], payload)

    def _read(self, data: bytes) -> bytes:
        """The payload, by the way that takes everything: cut lines and chunks, extensions, the end."""
        if self._held:
            data, self._held = self._held + data, b""
        pieces: list[bytes] = []
        at = 0
        while at < len(data) and not self.over:
            if self._left:
                pieces.append(piece := data[at : at + self._left])
                self._left -= len(piece)
                at += len(piece)
            else:
                at = self._read_line(data, at)
        self.surplus = self.surplus or at < len(data)
        self.between = self._awaited is _Awaited.SIZE and not (self._left or self._held or self.over)
        return b"".join(pieces)

    def _read_line(self, data: bytes, at: int) -> int:
        """Where what follows the line begins; a line that is not whole is held."""
        limit_bytes = _LIMITS_BYTES[self._awaited]
        end = data.find(CRLF, at, at + limit_bytes + 2)
        if end < 0:
            self._hold(data[at : at + limit_bytes + 2], limit_bytes)
            return len(data)
        line = data[at:end]
        if self._awaited is _Awaited.SIZE:
            self._read_size(line)
        elif self._awaited is _Awaited.CLOSING:
            self._awaited = _Awaited.SIZE
        else:
            self._read_trailer(line)
        return end + 2

    def _hold(self, line: bytes, limit_bytes: int) -> None:
        """Keep a line that is not whole, unless it can be told already that it will be no good."""
        words = line.removesuffix(b"\r")
        if len(words) > limit_bytes:
            self._break("a line is too long" if limit_bytes else "a chunk does not end where its size says")
        elif self._awaited is _Awaited.SIZE and _is_no_size(words.partition(b";")[0]):
            self._break("a chunk has no size")
        else:
            self._held = line

    def _read_size(self, line: bytes) -> None:
        digits, _, extension = line.partition(b";")
        if not digits or _is_no_size(digits) or extension.translate(None, _VISIBLE):
            self._break("a chunk has no size")
            return
        self._left = _size(digits)
        self._awaited = _Awaited.CLOSING if self._left else _Awaited.TRAILER

    def _read_trailer(self, line: bytes) -> None:
        if not line:
            self.over = True
            return
        name, colon, value = line.partition(b":")
        self._trailer_bytes += len(line) + 2
        if self._trailer_bytes > MAX_TRAILER_BYTES:
            self._break("the trailer is too long")
        elif not (name and colon) or name.translate(None, _TOKEN) or value.translate(None, _FIELD_VALUE):
            self._break("the trailer is not one")

    def _break(self, fault: str) -> None:
        self.over, self.fault = True, fault


# Streams say the same few sizes again and again: to look one up takes half the time of reading it.
@lru_cache(maxsize=1024)
def _size(digits: bytes) -> int:
    """The size that at most MAX_DIGITS characters say, NO_SIZE where they say none."""
    return NO_SIZE if digits.strip(HEX) or not digits else int(digits, 16)


def _is_no_size(digits: bytes) -> bool:
    """Whether these cannot be, or become, the digits of a size."""
    return len(digits) > MAX_DIGITS or bool(digits.strip(HEX))


def _whole_chunks(data: bytes) -> tuple[int, list[bytes]]:
    """The whole chunks without extensions that `data` begins with: where they end, and their payloads."""
    pieces: list[bytes] = []
    at = 0
    while (line_end := data.find(CRLF, at, at + MAX_DIGITS + 2)) > at:
        size = _size(data[at:line_end])
        end = line_end + 2 + size
        if size <= 0 or data[end : end + 2] != CRLF:
            break
        pieces.append(data[line_end + 2 : end])
        at = end + 2
    return at, pieces

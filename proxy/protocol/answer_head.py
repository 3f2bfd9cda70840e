"""Reads the head of an engine's answer, cut anywhere, and strictly: how its body is framed, and whether its connection
may be used again.

llhttp reads the fields. Not here: the body, and which fields are passed on.
"""

import re
from enum import StrEnum

import httptools

from proxy.protocol.fields import Fields

# Heads of engines are below 4 KiB; 64 KiB is the most a broken one may make us hold.
MAX_HEAD_BYTES = 65536
END = b"\r\n\r\n"
# Whether a connection may be kept, by the words that a head begins with; other versions are not HTTP/1.
VERSIONS = {b"HTTP/1.1 ": True, b"HTTP/1.0 ": False}
# Answers that have no body, whatever their fields say.
BODILESS_STATUSES = frozenset({204, 304})
# No part of a value, and no way to end one either: NUL, CR and LF are none of them.
_CONTROLS = bytes(range(1, 9)) + b"\x0b\x0c" + bytes(range(14, 32)) + b"\x7f"
_FIELD = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[^\x00\r\n]*")
_FRAMING = frozenset({b"content-length", b"transfer-encoding", b"connection"})


class Framing(StrEnum):
    """How the end of a body is known: there is none, by Content-Length, by its last chunk, by the connection's end."""

    NONE = "none"
    LENGTH = "length"
    CHUNKED = "chunked"
    CLOSE = "close"


# Bound once: a look at an enum's class takes longer than the line that needs it.
NONE, LENGTH, CHUNKED, CLOSE = Framing


class HeadBroken(Exception):
    """What came is not the head of an answer."""


class AnswerHead:
    """One head. Once it is whole: `status`, `fields` as they came, `framing`, `length` (bytes, of Framing.LENGTH), and
    whether the connection may be `kept` behind the answer. `bodiless`: it answers HEAD."""

    __slots__ = (
        "_bodiless", "_ended", "_scout", "_seen", "fields", "framing", "kept", "length", "status",
    )  # fmt: skip

    def __init__(self, *, bodiless: bool) -> None:
        self._bodiless = bodiless
        self._ended = False
        self._scout: httptools.HttpResponseParser | None = None
        self.fields: Fields = []
        self.status = 0
        self.framing = NONE
        self.length: int | None = None
        self.kept = False

    def feed(self, data: bytes) -> bytes | None:
        """What came behind the head, or None while it is not whole. Raises HeadBroken."""
        end = data.find(END) + 4
        if self._scout is not None or end < 4:
            return self._feed_piece(data)
        self._read(data[:end])
        return data[end:]

    def _feed_piece(self, data: bytes) -> bytes | None:
        """The same where the head comes in several reads: they are kept until it is whole, and a parser is fed with
        them meanwhile, since what cannot become a head is not to be waited for."""
        if self._scout is None:
            self._scout = httptools.HttpResponseParser(_Nobody())
            self._scout.set_dangerous_leniencies(lenient_headers=True)
            self._seen = bytearray()
        seen, size_bytes = self._seen, len(self._seen)
        seen += data
        end = seen.find(END, max(0, size_bytes - 3)) + 4
        if end >= 4:
            self._read(bytes(seen[:end]))
            return data[end - size_bytes :]
        if len(seen) > MAX_HEAD_BYTES or not any(each.startswith(seen[:9]) for each in VERSIONS):
            raise HeadBroken("it is too long" if len(seen) > MAX_HEAD_BYTES else "it is none of HTTP/1")
        _parse(self._scout, data)
        return None

    def _read(self, head: bytes) -> None:
        kept = VERSIONS.get(head[:9])
        if kept is None or len(head) > MAX_HEAD_BYTES:
            raise HeadBroken("it is none of HTTP/1" if kept is None else "it is too long")
        parser = httptools.HttpResponseParser(self)
        try:
            parser.feed_data(head)
        except (httptools.HttpParserUpgrade, httptools.HttpParserError) as error:
            parser = self._read_again(parser, head, error)
        if not self._ended:
            raise HeadBroken("it ends before it is one")
        self.status = parser.get_status_code()
        self._conclude(kept=kept)

    def _read_again(
        self, parser: httptools.HttpResponseParser, head: bytes, error: Exception
    ) -> httptools.HttpResponseParser:
        """The parser that takes the head, less the fields that it may lose."""
        if isinstance(error, httptools.HttpParserUpgrade):
            return parser
        if not (mended := _without_controls(head)):
            raise HeadBroken(str(error)) from None
        parser = httptools.HttpResponseParser(self)
        self.fields.clear()
        _parse(parser, mended)
        return parser

    def on_header(self, name: bytes, value: bytes) -> None:
        """The parser has a field."""
        self.fields.append((name, value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        """The parser has them all."""
        self._ended = True

    def _conclude(self, *, kept: bool) -> None:
        """What the fields say of the body. Most of them are told apart by their size, without a copy in lower case."""
        length: int | None = None
        coding: bytes | None = None
        for name, value in self.fields:
            size = len(name)
            if size == 14 and name.lower() == b"content-length":
                if not value.isdigit():
                    raise HeadBroken("its length is no number")
                length = int(value)
            elif size == 17 and name.lower() == b"transfer-encoding":
                coding = value.lower() if coding is None else b"twice"
            elif size == 10 and kept and name.lower() == b"connection":
                kept = b"close" not in [each.strip() for each in value.lower().split(b",")]
        if self._bodiless or self.status < 200 or self.status in BODILESS_STATUSES:
            self.length = None
        elif coding is not None:
            if coding != b"chunked":
                raise HeadBroken("its transfer coding is another than chunks")
            self.framing, self.length = CHUNKED, length
        elif length is not None:
            self.framing, self.length = LENGTH, length
        else:
            self.framing, kept = CLOSE, False
        self.kept = kept


class _Nobody:
    """Wants to know nothing of a head."""


def _parse(parser: httptools.HttpResponseParser, data: bytes) -> None:
    try:
        parser.feed_data(data)
    except httptools.HttpParserUpgrade:
        pass  # a head like others for us, of status 101
    except httptools.HttpParserError as error:
        raise HeadBroken(str(error)) from None


def _without_controls(head: bytes) -> bytes:
    """The head less the fields whose values have control characters, which cost an engine the field and not the answer;
    b"" where framing hangs on one, or it is no field."""
    first, *lines = head.split(b"\r\n")
    odd = [line for line in lines if line.translate(None, _CONTROLS) != line]
    for line in odd:
        field = _FIELD.fullmatch(line)
        if field is None or field[1].lower() in _FRAMING:
            return b""
    if not odd:
        return b""
    return b"\r\n".join([first, *(line for line in lines if line not in odd)])

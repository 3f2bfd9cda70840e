"""Reads the head of an engine's answer, cut anywhere, and strictly: how its body is framed, and whether its connection
may be used again.

llhttp reads the fields. Not here: the body, and which fields are passed on.
"""

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


class Framing(StrEnum):
    """How the end of a body is known: there is none, by Content-Length, by its last chunk, by the connection's end."""

    NONE = "none"
    LENGTH = "length"
    CHUNKED = "chunked"
    CLOSE = "close"


class HeadBroken(Exception):
    """What came is not the head of an answer."""


class AnswerHead:
    """One head. Once it is whole: `status`, `fields` as they came, `framing`, `length` (bytes, of Framing.LENGTH), and
    whether the connection may be `kept` behind the answer. `bodiless`: it answers HEAD."""

    __slots__ = (
        "_bodiless", "_ended", "_parser", "_seen", "_size_bytes", "fields", "framing", "kept", "length", "status",
    )  # fmt: skip

    def __init__(self, *, bodiless: bool) -> None:
        self._bodiless = bodiless
        self._ended = False
        self._parser: httptools.HttpResponseParser | None = None
        self.fields: Fields = []
        self.status = 0
        self.framing = Framing.NONE
        self.length: int | None = None
        self.kept = False

    def feed(self, data: bytes) -> bytes | None:
        """What came behind the head, or None while it is not whole. Raises HeadBroken."""
        end = data.find(END) + 4
        if self._parser is not None or end < 4:
            return self._feed_piece(data)
        kept = VERSIONS.get(data[:9])
        if kept is None or end > MAX_HEAD_BYTES:
            raise HeadBroken("it is none of HTTP/1" if kept is None else "it is too long")
        parser = httptools.HttpResponseParser(self)
        self._parse(parser, data[:end])
        self._conclude(parser.get_status_code(), kept=kept)
        return data[end:]

    def give_up(self) -> None:
        """The rest will not come."""
        self._parser = None  # it knows this object's methods: the two would keep each other alive

    def _feed_piece(self, data: bytes) -> bytes | None:
        """The same where the head comes in several reads."""
        if self._parser is None:
            self._parser = httptools.HttpResponseParser(self)
            self._seen, self._size_bytes = b"", 0
        # Its first nine bytes while it is shorter, then its last three: all that two reads can have in common.
        seen = self._seen + data
        if len(self._seen) < 9 and self._size_bytes < 9 and not any(each.startswith(seen[:9]) for each in VERSIONS):
            raise HeadBroken("it is none of HTTP/1")
        end = seen.find(END)
        size_bytes = len(data) if end < 0 else end + 4 - len(self._seen)
        self._size_bytes += size_bytes
        if self._size_bytes > MAX_HEAD_BYTES:
            raise HeadBroken("it is too long")
        self._parse(self._parser, data[:size_bytes])
        if end < 0:
            self._seen = seen if self._size_bytes < 9 else seen[-3:]
            return None
        kept = self._parser.get_http_version() == "1.1"
        self._conclude(self._parser.get_status_code(), kept=kept)
        return data[size_bytes:]

    def _parse(self, parser: httptools.HttpResponseParser, data: bytes) -> None:
        try:
            parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # a head like others for us, of status 101
        except httptools.HttpParserError as error:
            self.give_up()
            raise HeadBroken(str(error)) from None

    def on_header(self, name: bytes, value: bytes) -> None:
        """The parser has a field."""
        self.fields.append((name, value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        """The parser has them all."""
        self._ended = True

    def _conclude(self, status: int, *, kept: bool) -> None:
        self.give_up()
        if not self._ended:
            raise HeadBroken("it ends before it is one")
        self.status = status
        coding: bytes | None = None
        for name, value in self.fields:
            size = len(name)  # most fields are told apart by it, without a copy in lower case
            if size == 14 and name.lower() == b"content-length":
                self.length = _length(value)
            elif size == 17 and name.lower() == b"transfer-encoding":
                coding = value.lower() if coding is None else b"twice"
            elif size == 10 and kept and name.lower() == b"connection":
                kept = b"close" not in [each.strip() for each in value.lower().split(b",")]
        self._frame(coding, kept=kept)

    def _frame(self, coding: bytes | None, *, kept: bool) -> None:
        if self._bodiless or self.status < 200 or self.status in BODILESS_STATUSES:
            self.length = None
        elif coding is not None:
            if coding != b"chunked":
                raise HeadBroken("its transfer coding is another than chunks")
            self.framing = Framing.CHUNKED
        elif self.length is not None:
            self.framing = Framing.LENGTH
        else:
            self.framing, kept = Framing.CLOSE, False
        self.kept = kept


def _length(value: bytes) -> int:
    if not value.isdigit():
        raise HeadBroken("its length is no number")
    return int(value)

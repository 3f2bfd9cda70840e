"""A strict reader of HTTP/1.1 (RFC 9112), written to be compared with: what it does not find in bytes is not there.

It forgives nothing but line ends before a request and blanks around a target. Not here: any meaning of methods, targets
and headers beyond what frames a message.
"""

import re
from dataclasses import dataclass

TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
REQUEST_LINE = re.compile(rb"(" + TOKEN + rb") +([\x21-\x7e]+) +HTTP/(1\.[01])")
STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([1-9][0-9][0-9])(?: [\t\x20-\x7e\x80-\xff]*)?")
FIELD = re.compile(rb"(" + TOKEN + rb"):[ \t]*([\t\x20-\x7e\x80-\xff]*)")
DIGITS = re.compile(rb"[0-9]{1,18}")
CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?")

Fields = list[tuple[bytes, bytes]]


class Malformed(Exception):
    """The bytes are not HTTP/1.1 from here on."""


class Unfinished(Exception):
    """The bytes end before the message does; `body` is what has come of it."""

    def __init__(self, body: bytes = b"", *, head: bool = False) -> None:
        super().__init__("unfinished")
        self.body = body
        self.head = head


@dataclass(frozen=True)
class Request:
    """One whole request; the target byte for byte, the body without its framing."""

    method: bytes
    target: bytes
    version: bytes
    fields: Fields
    body: bytes


@dataclass(frozen=True)
class Response:
    """One answer; `whole` is false where the bytes ended first, `until_close` where only their end can end it."""

    status: int
    fields: Fields
    body: bytes
    whole: bool
    until_close: bool = False


def values(fields: Fields, wanted: bytes) -> list[bytes]:
    """All values of a header."""
    return [value.strip() for name, value in fields if name.lower() == wanted]


def read_requests(stream: bytes) -> tuple[list[Request], str]:
    """The whole requests that a stream begins with, and what follows: "", "unfinished", "malformed" or "closed"."""
    found: list[Request] = []
    at = 0
    while True:
        while stream.startswith((b"\r", b"\n"), at):
            at += 1
        if at == len(stream):
            return found, ""
        try:
            request, at = _request(stream, at)
        except Malformed:
            return found, "malformed"
        except Unfinished:
            return found, "unfinished"
        found.append(request)
        named = b",".join(values(request.fields, b"connection")).lower().split(b",")
        options = [option.strip() for option in named]
        kept = b"close" not in options if request.version == b"1.1" else b"keep-alive" in options
        if not kept:
            return found, "closed"


def read_responses(stream: bytes, methods: list[bytes], *, closed: bool) -> list[Response]:
    """The answers in a stream to requests with these methods (GET where there are more answers), interim ones left
    out. Raises Malformed, also for bytes after the last answer of a connection."""
    found: list[Response] = []
    at = 0
    while at < len(stream):
        try:
            line, fields, at = _head(stream, at)
        except Unfinished:
            raise Malformed("the answer's head is unfinished") from None
        match = STATUS_LINE.fullmatch(line)
        if match is None:
            raise Malformed(f"no status line: {line!r}")
        status = int(match[1])
        if 100 <= status < 200:
            continue
        method = methods[len(found)] if len(found) < len(methods) else b"GET"
        bodiless = method == b"HEAD" or status in (204, 304)
        response, at = _response(stream, at, status, fields, bodiless=bodiless, closed=closed)
        found.append(response)
    return found


def _request(stream: bytes, at: int) -> tuple[Request, int]:
    line, fields, at = _head(stream, at)
    match = REQUEST_LINE.fullmatch(line)
    if match is None:
        raise Malformed(f"no request line: {line!r}")
    codings, lengths = values(fields, b"transfer-encoding"), values(fields, b"content-length")
    if codings:
        if lengths or match[3] != b"1.1" or [each.lower() for each in codings] != [b"chunked"]:
            raise Malformed("a transfer coding beside a length, of HTTP/1.0, or other than chunked alone")
        body, at = _chunks(stream, at)
    else:
        size = _length(lengths)
        if size > len(stream) - at:
            raise Unfinished(stream[at:])
        body, at = stream[at : at + size], at + size
    return Request(match[1], match[2], match[3], fields, body), at


def _response(
    stream: bytes, at: int, status: int, fields: Fields, *, bodiless: bool, closed: bool
) -> tuple[Response, int]:
    if bodiless:
        return Response(status, fields, b"", whole=True), at
    try:
        if values(fields, b"transfer-encoding"):
            if values(fields, b"transfer-encoding") != [b"chunked"] or values(fields, b"content-length"):
                raise Malformed("an answer with two kinds of framing")
            body, at = _chunks(stream, at)
        elif values(fields, b"content-length"):
            size = _length(values(fields, b"content-length"))
            if size > len(stream) - at:
                raise Unfinished(stream[at:])
            body, at = stream[at : at + size], at + size
        else:
            return Response(status, fields, stream[at:], whole=closed, until_close=True), len(stream)
    except Unfinished as error:
        return Response(status, fields, error.body, whole=False), len(stream)
    return Response(status, fields, body, whole=True), at


def _head(stream: bytes, at: int) -> tuple[bytes, Fields, int]:
    lines: list[bytes] = []
    while True:
        line, at = _line(stream, at)
        if not line:
            break
        lines.append(line)
    if not lines:
        raise Malformed("an empty head")
    return lines[0], _fields(lines[1:]), at


def _fields(lines: list[bytes]) -> Fields:
    fields: Fields = []
    for line in lines:
        match = FIELD.fullmatch(line)
        if match is None:
            raise Malformed(f"no header: {line!r}")
        fields.append((match[1], match[2].rstrip(b" \t")))
    return fields


def _line(stream: bytes, at: int) -> tuple[bytes, int]:
    end = stream.find(b"\n", at)
    if end < 0:
        raise Unfinished(head=True)
    if stream[end - 1 : end] != b"\r" or end == at:
        raise Malformed("a line that ends in a bare LF")
    return stream[at : end - 1], end + 1


def _length(lengths: list[bytes]) -> int:
    if not lengths:
        return 0
    if len(lengths) > 1 or not DIGITS.fullmatch(lengths[0]):
        raise Malformed(f"no length: {lengths!r}")
    return int(lengths[0])


def _chunks(stream: bytes, at: int) -> tuple[bytes, int]:
    body = b""
    try:
        while True:
            line, at = _line(stream, at)
            match = CHUNK_SIZE.fullmatch(line)
            if match is None:
                raise Malformed(f"no chunk size: {line!r}")
            size = int(match[1], 16)
            if not size:
                break
            body += stream[at : at + size]
            if size + 2 > len(stream) - at:
                raise Unfinished
            if stream[at + size : at + size + 2] != b"\r\n":
                raise Malformed("a chunk that is longer than its size")
            at += size + 2
        trailers = []
        while True:
            line, at = _line(stream, at)
            if not line:
                break
            trailers.append(line)
        _fields(trailers)
    except Unfinished:
        raise Unfinished(body) from None
    return body, at

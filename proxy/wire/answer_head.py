"""The heads of answers as bytes: a status line, fields as they are given, and what every answer says beside them.

How an answer's body is framed is decided in downstream.py.
"""

import time
from email.utils import formatdate
from http import HTTPStatus

from proxy.protocol.fields import Fields

SERVER = b"crossover"
"""Said where the engine says nothing."""

KEEP = b"Connection: keep-alive\r\n"
CLOSE = b"Connection: close\r\n"
CHUNKS = b"Transfer-Encoding: chunked\r\n"

DATE, SERVED, LENGTH = 1, 2, 4
_MARKS = {b"date": DATE, b"server": SERVED, b"content-length": LENGTH}
_SIZES = frozenset(map(len, _MARKS))
_SPELT = b": ".join
_PHRASES = {status.value: status.phrase for status in HTTPStatus}
_LINES_10: dict[int, bytes] = {}
_LINES_11: dict[int, bytes] = {}


class _Date:
    """The date field, made once a second."""

    second = 0
    line = b""


def date_line() -> bytes:
    """The Date field of an answer that is sent now."""
    now = int(time.time())  # noqa: TID251 - what the field is about
    if now != _Date.second:
        _Date.second, _Date.line = now, b"Date: %b\r\n" % formatdate(now, usegmt=True).encode()
    return _Date.line


def named(fields: Fields) -> int:
    """Which of DATE, SERVED and LENGTH stand among these fields."""
    found = 0
    for name, _ in fields:
        if len(name) in _SIZES:
            found |= _MARKS.get(name.lower(), 0)
    return found


def compose(status: int, fields: Fields, framing: bytes, marks: int, *, http10: bool) -> bytes:
    """A whole head, its blank line included. `framing` are lines of ours about connection and body, `marks` what
    `named` has found."""
    head = b"\r\n".join([status_line(status, http10=http10), *map(_SPELT, fields), framing])
    if not marks & DATE:
        head += date_line()
    return head + (b"\r\n" if marks & SERVED else b"Server: crossover\r\n\r\n")


def status_line(status: int, *, http10: bool) -> bytes:
    """The first line without its end; an unknown status has no words."""
    lines = _LINES_10 if http10 else _LINES_11
    line = lines.get(status)
    if line is None:
        version = "1.0" if http10 else "1.1"
        line = lines[status] = f"HTTP/{version} {status} {_PHRASES.get(status, '')}".encode()
    return line

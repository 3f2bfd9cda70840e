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

DATE, SERVED, LENGTH, STREAMED, OURS = 1, 2, 4, 8, 16
_MARKS = {b"date": DATE, b"server": SERVED, b"content-length": LENGTH, b"content-type": STREAMED, b"x-request-id": OURS}
_OWN_PREFIX = b"x-crossover-"
# As nearly all engines spell them: these need not be brought to lower case.
_SPELLINGS = {spelt: mark for name, mark in _MARKS.items() for spelt in (name, name.title())}
# The only lengths of names that can be among them; the shortest of our own prefix is longer.
_SIZES = frozenset(map(len, _MARKS))
# What comes piece by piece, whether we understand it or not: without a word, proxies in front gather it into bursts.
_STREAMED_TYPES = frozenset({b"text/event-stream", b"application/x-ndjson"})
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
    """What stands among these fields: DATE, SERVED, LENGTH, STREAMED (a type of body that comes piece by piece), and
    OURS: names that our own stamps may have."""
    found = 0
    for name, value in fields:
        mark = _SPELLINGS.get(name)
        if mark is None:
            mark = _mark(name)
        if mark != STREAMED or _is_streamed(value):
            found |= mark
    return found


def _mark(name: bytes) -> int:
    if len(name) in _SIZES:
        return _MARKS.get(name.lower(), 0)
    return OURS if name[:2] in (b"x-", b"X-") and name.lower().startswith(_OWN_PREFIX) else 0


def _is_streamed(content_type: bytes) -> bool:
    return content_type.partition(b";")[0].strip().lower() in _STREAMED_TYPES


def compose(status: int, fields: Fields, lines: bytes, marks: int, *, http10: bool) -> bytes:
    """A whole head, its blank line included. `lines` are whole ones of ours behind the fields, `marks` what `named` has
    found."""
    first = (_LINES_10 if http10 else _LINES_11).get(status) or _first_line(status, http10=http10)
    head = b"\r\n".join([first, *map(_SPELT, fields), lines])
    if not marks & DATE:
        head += date_line()
    return head + (b"\r\n" if marks & SERVED else b"Server: crossover\r\n\r\n")


def _first_line(status: int, *, http10: bool) -> bytes:
    """The line without its end, from now on in memory; an unknown status has no words."""
    version, lines = ("1.0", _LINES_10) if http10 else ("1.1", _LINES_11)
    line = lines[status] = f"HTTP/{version} {status} {_PHRASES.get(status, '')}".encode()
    return line

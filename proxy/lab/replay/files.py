"""Log files to lines: plain or compressed by gzip, several of them, or standard input. What a line says is not here."""

import gzip
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from proxy.errors import ConfigError

STDIN = "-"

# The longest line of a request has some 1,500 bytes, in a wrapping twice that. What is longer is another file, and
# one without any line end must not fill the memory.
MAX_LINE_BYTES = 1 << 16

_GZIP = b"\x1f\x8b"


def lines_of(names: Sequence[str]) -> Iterator[bytes]:
    """All lines of the files, one file after the other. A longer one than MAX_LINE_BYTES comes cut, one byte over it.

    Raises `ConfigError` that names the file and the mend.
    """
    for name in names:
        try:
            with _opened(name) as file:
                yield from _lines(file)
        except (OSError, EOFError, zlib.error) as error:
            reason = getattr(error, "strerror", None) or str(error) or "it ends in the middle"
            raise ConfigError(f"{name}: cannot be read ({reason}); mend: check the path, or decompress it") from error


def _lines(file: BinaryIO) -> Iterator[bytes]:
    while line := file.readline(MAX_LINE_BYTES + 1):
        yield line
        while len(line) > MAX_LINE_BYTES and not line.endswith(b"\n"):
            line = file.readline(MAX_LINE_BYTES + 1)  # the rest belongs to what was cut


@contextmanager
def _opened(name: str) -> Iterator[BinaryIO]:
    if name == STDIN:
        yield _unpacked(sys.stdin.buffer)
        return
    with Path(name).open("rb") as file:
        yield _unpacked(file)


def _unpacked(file: object) -> BinaryIO:
    """By the first bytes, not by the name: what was rotated keeps any."""
    packed = file.peek(2)[:2] == _GZIP  # type: ignore[attr-defined]  # a buffered reader
    return cast(BinaryIO, gzip.GzipFile(fileobj=file) if packed else file)  # type: ignore[call-overload]

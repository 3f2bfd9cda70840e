"""Bodies in the content codings that engines use, each a valid stream of its coding, without a library for them."""

import gzip
import zlib

CODINGS = ("zstd", "br", "gzip", "deflate")


def packed(body: bytes, coding: str | None) -> bytes:
    """`body` in `coding`, as it is without one. zstd and br are stored, not squeezed: at most 64 KiB."""
    packers = {"gzip": _gzip, "deflate": zlib.compress, "zstd": _zstd, "br": _br}
    return packers[coding](body) if coding else body


def _gzip(body: bytes) -> bytes:
    """Without the time of its packing, which two packers of one test would not share."""
    return gzip.compress(body, mtime=0)


def chosen(accept: str | None) -> str | None:
    """The coding that an engine picks for an Accept-Encoding header: the first of CODINGS that is taken."""
    taken = set()
    for part in (accept or "").split(","):
        name, _, quality = part.strip().partition(";")
        if quality.replace(" ", "") != "q=0":
            taken.add(name.strip())
    return next((coding for coding in CODINGS if coding in taken), None)


def _zstd(body: bytes) -> bytes:
    """One frame (RFC 8878) of one raw block; the size stands in four bytes."""
    block = (len(body) << 3 | 1).to_bytes(3, "little")
    return b"\x28\xb5\x2f\xfd\xa0" + len(body).to_bytes(4, "little") + block + body


def _br(body: bytes) -> bytes:
    """One uncompressed meta-block (RFC 7932) and an empty last one."""
    return ((len(body) - 1) << 4 | 1 << 20).to_bytes(3, "little") + body + b"\x03"

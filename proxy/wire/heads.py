"""What is wrong with the head of a request that is well formed.

Counting the bytes and the time of heads that have not ended is in reader.py and client.py.
"""

from proxy.errors import CodingUnsupported, CrossoverError, HeadTooLarge, InvalidRequest, VersionUnsupported
from proxy.protocol.fields import Fields
from proxy.wire.arrivals import ConnectionRules

SPOKEN = frozenset({"1.0", "1.1"})
"""Versions of HTTP."""


def fault_of(version: str, fields: Fields, by_name: dict[bytes, bytes]) -> CrossoverError | None:
    """What keeps a request of this version with these fields from being read on; None where nothing does."""
    if version not in SPOKEN:
        return VersionUnsupported("this port speaks HTTP/1.1 and HTTP/1.0")
    hosts = sum(name.lower() == b"host" for name, _ in fields)
    if hosts > 1 or (hosts == 0 and version == "1.1"):
        # Of two, each hop may believe another (RFC 9112, section 3.2).
        return InvalidRequest("a request has one Host field, and needs it in HTTP/1.1")
    coding = by_name.get(b"transfer-encoding")
    return None if coding is None else _fault_of_coding(version, coding)


def _fault_of_coding(version: str, coding: bytes) -> CrossoverError | None:
    if version == "1.0":
        # A hop that speaks HTTP/1.0 has no chunks, and finds another end of this request (RFC 9112, section 6.1).
        return InvalidRequest("HTTP/1.0 has no Transfer-Encoding; send Content-Length, or HTTP/1.1")
    if coding.rpartition(b",")[2].strip().lower() != b"chunked":
        return InvalidRequest("the request is not valid HTTP/1.1")  # nobody can tell where it ends
    if coding.lower() != b"chunked":
        return CodingUnsupported("bodies come in chunks or with a Content-Length, in no other transfer coding")
    return None


def too_large(rules: ConnectionRules) -> HeadTooLarge:
    """The error for a head over the limits."""
    return HeadTooLarge(
        f"the head of the request is over listen.max_head_bytes ({rules.max_head_bytes}) or listen.max_headers "
        f"({rules.max_headers}); send less, or raise the limit"
    )


def head_bytes(method: bytes, target: bytes, fields: Fields) -> int:
    """The size of a head as it was sent, but for white space around its values."""
    line = len(method) + len(target) + len(" ") * 2 + len("HTTP/1.1\r\n")
    return line + sum(len(name) + len(value) + len(": \r\n") for name, value in fields)

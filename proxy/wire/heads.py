"""What is wrong with the head of a request that aiohttp found well formed.

Counting the bytes and the time of heads that have not ended is the connection's (front.py).
"""

from typing import Any

from aiohttp import HttpVersion10, HttpVersion11

from proxy.errors import CodingUnsupported, CrossoverError, HeadTooLarge, InvalidRequest, VersionUnsupported
from proxy.wire.arrivals import ConnectionRules


def fault_of(message: Any, most_bytes: int, rules: ConnectionRules) -> CrossoverError | None:
    """None where nothing is wrong. `most_bytes` came with the head, what follows it included."""
    if message.version not in (HttpVersion11, HttpVersion10):
        return VersionUnsupported("this port speaks HTTP/1.1 and HTTP/1.0")
    if message.version == HttpVersion10 and "Transfer-Encoding" in message.headers:
        # A hop that speaks HTTP/1.0 has no chunks, and finds another end of this request (RFC 9112, section 6.1).
        return InvalidRequest("HTTP/1.0 has no Transfer-Encoding; send Content-Length, or HTTP/1.1")
    if message.headers.get("Transfer-Encoding", "chunked").strip().lower() != "chunked":
        return CodingUnsupported("bodies come in chunks or with a Content-Length, in no other transfer coding")
    large = most_bytes > rules.max_head_bytes and _head_bytes(message) > rules.max_head_bytes
    return too_large(rules) if large else None


def too_large(rules: ConnectionRules) -> HeadTooLarge:
    """The error for a head over the limits."""
    return HeadTooLarge(
        f"the head of the request is over listen.max_head_bytes ({rules.max_head_bytes}) or listen.max_headers "
        f"({rules.max_headers}); send less, or raise the limit"
    )


def _head_bytes(message: Any) -> int:
    """The size of a head as it was sent, but for white space around its values."""
    line: int = len(message.method) + len(message.path) + len(" ") * 2 + len("HTTP/1.1\r\n")
    return line + sum(len(name) + len(value) + len(": \r\n") for name, value in message.raw_headers)

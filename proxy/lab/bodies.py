"""The bodies of answers that the laboratory asks for, and no more of one than it can rightly have.

What is asked, and what is said of an answer that is too large, is where it is asked.
"""

import aiohttp


class OversizeBody(aiohttp.ClientError):
    """An answer is larger than any to what was asked."""


async def whole(content: aiohttp.StreamReader, max_bytes: int) -> bytes:
    """The whole body. Awaits. Raises OversizeBody as soon as it is more than `max_bytes`."""
    body = bytearray()
    async for piece in content.iter_any():
        body += piece
        if len(body) > max_bytes:
            raise OversizeBody(f"more than {max_bytes:,} bytes")
    return bytes(body)

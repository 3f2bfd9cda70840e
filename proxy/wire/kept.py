"""A backend's failed answer, kept while the other backend is tried: it is still the best answer if that fails too."""

import asyncio
from dataclasses import dataclass

from proxy.errors import UpstreamError
from proxy.protocol.fields import Fields
from proxy.wire.attempt import Opened

# Error bodies are below a kilobyte and come with their head; what is larger or slower is not worth the wait.
KEEP_MAX_BYTES = 65536
KEEP_WITHIN_S = 1.0


@dataclass(frozen=True, slots=True)
class Kept:
    """A whole answer."""

    status: int
    fields: Fields
    body: bytes


async def keep(opened: Opened) -> Kept | None:
    """Read a plain answer whole and close its connection; None when it is a stream, too large, late or broken."""
    answer = opened.answer
    try:
        if opened.scanner is not None:
            return None
        async with asyncio.timeout(KEEP_WITHIN_S):
            body = b""
            while data := await answer.read():
                body += data
                if len(body) > KEEP_MAX_BYTES:
                    return None
        return Kept(answer.status, answer.fields, body)
    except (UpstreamError, TimeoutError):
        return None
    finally:
        answer.close()

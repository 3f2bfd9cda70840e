"""Reads one request's body whole, within its limits: it is peeked at, and kept for one more attempt."""

import asyncio

from aiohttp import StreamReader, web

from proxy.errors import BodyTimeout, BodyTooLarge, InvalidRequest


async def read_body(request: web.BaseRequest, *, max_bytes: int, pause_s: float) -> bytes:
    """The body as received, still content-encoded.

    Raises BodyTooLarge over `max_bytes` (before reading, where Content-Length says so), BodyTimeout when the client
    pauses for `pause_s`, InvalidRequest when its framing is broken.
    """
    if not request.body_exists:
        return b""
    declared = request.content_length
    if declared is not None and declared > max_bytes:
        raise _too_large(max_bytes)
    if request.headers.get("Expect", "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # aiohttp takes a request with output for one that is answered
    return await _collect(request.content, max_bytes, pause_s)


async def _collect(content: StreamReader, max_bytes: int, pause_s: float) -> bytes:
    pieces: list[bytes] = []
    size_bytes = 0
    try:
        while True:
            async with asyncio.timeout(pause_s):
                data = await content.readany()
            if not data:
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)
            size_bytes += len(data)
            if size_bytes > max_bytes:
                raise _too_large(max_bytes)
            pieces.append(data)
    except TimeoutError as error:
        message = f"the request body paused for longer than listen.body_timeout_s ({pause_s:g} s)"
        raise BodyTimeout(message) from error
    except (ValueError, web.HTTPException, web.RequestPayloadError) as error:
        raise InvalidRequest("the request body is not framed as its headers say") from error


def _too_large(max_bytes: int) -> BodyTooLarge:
    return BodyTooLarge(f"the request body is over listen.max_body_bytes ({max_bytes}); send less or raise the limit")

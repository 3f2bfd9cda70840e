"""Reads one request's body whole, within its limits: it is peeked at, and kept for one more attempt.

All that are held have a limit together, too.
"""

import asyncio
from dataclasses import dataclass

from proxy.errors import BodiesFull, BodyTimeout, BodyTooLarge, BodyTooSlow
from proxy.wire.request import Incoming, Request


@dataclass(frozen=True, slots=True)
class BodyRules:
    """Limits of one body, and `max_held_bytes` of all that are held at once. In every `pause_s` seconds of reading
    `min_bytes_per_s` must come on average, and something at all."""

    max_bytes: int = 67108864
    pause_s: float = 60.0
    min_bytes_per_s: int = 256
    max_held_bytes: int = 1073741824


class Bodies:
    """Reads bodies, and counts the bytes of all that are held."""

    def __init__(self, rules: BodyRules) -> None:
        self.rules = rules
        self.held_bytes = 0

    def take(self, request: Request) -> "Body":
        """The body of a request that has come whole, or has none. Raises BodyTooLarge and BodiesFull."""
        body = Body(self)
        if request.incoming.expected:
            content = request.incoming.take()
            body.grow(len(content))
            body.content = content
        return body

    async def read(self, request: Request) -> "Body":
        """The body as received, still content-encoded; whoever gets it frees it.

        Raises BodyTooLarge and BodiesFull (before reading, where Content-Length says so), BodyTimeout when the client
        pauses or is too slow, InvalidRequest when its framing is broken.
        """
        incoming = request.incoming
        if incoming.ended:
            return self.take(request)
        body = Body(self)
        body.require(incoming.length or 0)
        try:
            body.content = await _collect(incoming, self.rules, body)
        except BaseException:
            body.free()
            raise
        return body


class Body:
    """One body. Its bytes count as held until it is freed, which whoever read it does on every ending."""

    __slots__ = ("_bodies", "_size_bytes", "content")

    def __init__(self, bodies: Bodies) -> None:
        self.content = b""
        self._bodies = bodies
        self._size_bytes = 0

    def require(self, size_bytes: int) -> None:
        """Raises BodyTooLarge or BodiesFull where so many bytes more are not allowed."""
        rules = self._bodies.rules
        if self._size_bytes + size_bytes > rules.max_bytes:
            raise BodyTooLarge(
                f"the request body is over listen.max_body_bytes ({rules.max_bytes}); send less or raise the limit"
            )
        if self._bodies.held_bytes + size_bytes > rules.max_held_bytes:
            raise BodiesFull(
                f"the requests under way hold as many bytes as listen.max_held_body_bytes ({rules.max_held_bytes}) "
                "allows; try again"
            )

    def grow(self, size_bytes: int) -> None:
        """Count bytes that have come. Raises BodyTooLarge or BodiesFull."""
        bodies, rules = self._bodies, self._bodies.rules
        held_bytes, whole_bytes = bodies.held_bytes + size_bytes, self._size_bytes + size_bytes
        if held_bytes > rules.max_held_bytes or whole_bytes > rules.max_bytes:
            self.require(size_bytes)
        self._size_bytes, bodies.held_bytes = whole_bytes, held_bytes

    def free(self) -> None:
        """Let go of the bytes; once or more often."""
        self._bodies.held_bytes -= self._size_bytes
        self._size_bytes, self.content = 0, b""


async def _collect(incoming: Incoming, rules: BodyRules, body: Body) -> bytes:
    pieces: list[bytes] = []
    goal_bytes = rules.min_bytes_per_s * rules.pause_s
    since_bytes = 0  # since the clock was last set: at the start, and whenever enough has come
    clock = asyncio.get_running_loop().time
    try:
        async with asyncio.timeout(rules.pause_s) as limit:
            while data := await incoming.more():
                body.grow(len(data))
                pieces.append(data)
                since_bytes += len(data)
                if since_bytes >= goal_bytes:
                    since_bytes = 0
                    limit.reschedule(clock() + rules.pause_s)
    except TimeoutError as error:
        raise _late(rules, since_bytes) from error
    finally:
        del limit  # it keeps its task, which keeps this frame where it was cancelled here
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _late(rules: BodyRules, since_bytes: int) -> BodyTimeout:
    if since_bytes == 0:
        return BodyTimeout(f"the request body paused for longer than listen.body_timeout_s ({rules.pause_s:g} s)")
    return BodyTooSlow(
        f"the request body came more slowly than listen.min_body_bytes_per_s ({rules.min_bytes_per_s}) for "
        f"listen.body_timeout_s ({rules.pause_s:g} s)"
    )

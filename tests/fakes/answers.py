"""A backend's side without sockets: answers and calls in the terms that the trip is written against."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from proxy.errors import UpstreamError
from proxy.wire.upstream import Answer, Call, Headers

SSE = [("content-type", "text/event-stream")]


@dataclass
class FakeAnswer:
    """Gives its pieces one read at a time, then raises `failure`, hangs, or ends."""

    pieces: Sequence[bytes] = ()
    status: int = 200
    headers: Headers = field(default_factory=lambda: list(SSE))
    failure: UpstreamError | None = None
    hangs: bool = False
    closed: int = 0

    def __post_init__(self) -> None:
        self._left = list(self.pieces)

    async def read(self) -> bytes:
        if self._left:
            return self._left.pop(0)
        if self.hangs:
            await asyncio.Event().wait()
        if self.failure is not None:
            raise self.failure
        return b""

    def close(self) -> None:
        self.closed += 1


@dataclass
class FakeUpstream:
    """Answers calls in their order, or raises; hangs when it has nothing left."""

    replies: list[Answer | UpstreamError] = field(default_factory=list)
    calls: list[tuple[Call, bool]] = field(default_factory=list)

    async def send(self, call: Call, *, fresh: bool = False) -> Answer:
        self.calls.append((call, fresh))
        if not self.replies:
            await asyncio.Event().wait()
        reply = self.replies.pop(0)
        if isinstance(reply, UpstreamError):
            raise reply
        return reply

    async def close(self) -> None:
        pass

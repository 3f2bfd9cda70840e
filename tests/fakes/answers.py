"""A backend's side without sockets: answers and calls in the terms that the trip is written against."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from proxy.errors import UpstreamError
from proxy.protocol.answer_head import Framing
from proxy.protocol.fields import Fields
from proxy.wire.answer import Answer, Sink
from proxy.wire.connection import Call
from proxy.wire.deadlines import Deadlines, Wait

SSE = [(b"content-type", b"text/event-stream")]


def framed(payload: bytes) -> bytes:
    """A chunk, with a size as we never write one: it tells chunks that were passed on from those framed anew."""
    return b"%06X\r\n%b\r\n" % (len(payload), payload)


@dataclass
class FakeAnswer:
    """Gives its pieces one read at a time, then raises `failure`, hangs, or ends; a sink gets them all at once."""

    pieces: Sequence[bytes] = ()
    status: int = 200
    fields: Fields = field(default_factory=lambda: list(SSE))
    failure: UpstreamError | None = None
    hangs: bool = False
    framing: Framing = Framing.CHUNKED
    length: int | None = None
    closed: int = 0
    paused: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._left = list(self.pieces)
        self.sink: Sink | None = None

    @property
    def ended(self) -> bool:
        return not (self._left or self.hangs or self.failure)

    def has_come(self) -> bool:
        return bool(self._left)

    def take(self) -> bytes:
        return self._left.pop(0) if self._left else b""

    async def read(self) -> bytes:
        if self._left:
            return self._left.pop(0)
        if self.hangs:
            await asyncio.Event().wait()
        if self.failure is not None:
            raise self.failure
        return b""

    def pour(self, sink: Sink) -> None:
        self.sink = sink
        while self._left:
            self.say(self._left.pop(0))
        if self.failure is not None:
            sink.broke(self.failure)
        elif not self.hangs:
            sink.ended()

    def say(self, payload: bytes) -> None:
        """More comes, in a chunk of its own."""
        assert self.sink is not None
        self.sink.came(framed(payload) if self.framing is Framing.CHUNKED else b"", payload)

    def divert(self, to: object) -> None:
        """Nothing is read here."""

    def pause(self) -> None:
        self.paused.append(True)

    def resume(self) -> None:
        self.paused.append(False)

    def close(self) -> None:
        self.closed += 1


@dataclass
class FakeUpstream:
    """Answers calls in their order, or raises; hangs when it has nothing left."""

    replies: list[FakeAnswer | UpstreamError] = field(default_factory=list)
    calls: list[tuple[Call, bool]] = field(default_factory=list)
    deadlines: Deadlines = field(default_factory=Deadlines)

    async def send(self, call: Call, *, fresh: bool = False, wait: Wait | None = None) -> Answer:
        self.calls.append((call, fresh))
        if not self.replies:
            await asyncio.Event().wait()
        reply = self.replies.pop(0)
        if isinstance(reply, UpstreamError):
            raise reply
        return reply  # type: ignore[return-value] - it looks like one

    async def close(self) -> None:
        pass

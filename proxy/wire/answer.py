"""An answer of an engine whose head has come: its payload is taken, read, or poured into a sink as it comes.

Not here: the socket and the framing (connection.py), and when a connection is kept (calls.py).
"""

import asyncio
from typing import Any, Protocol

from proxy.errors import BackendBroken, UpstreamError
from proxy.protocol.answer_head import AnswerHead

# Bytes an answer may run ahead of its reader before reading from the engine pauses.
READ_AHEAD_BYTES = 65536


class Sink(Protocol):
    """What is told of an answer as it comes, from within the connection's own turn of the loop."""

    def came(self, framed: bytes, payload: bytes) -> None:
        """The next payload. `framed` are the very bytes from the socket where they are whole chunks, have exactly this
        payload and nothing else, so that they may be passed on; else b""."""
        ...

    def ended(self) -> None:
        """The answer is whole."""
        ...

    def broke(self, error: UpstreamError) -> None:
        """The answer will not be whole."""
        ...


class Source(Protocol):
    """Where an answer comes from."""

    def steer(self, *, reading: bool) -> None:
        """Read from the engine, or not."""
        ...

    def divert(self, to: Any) -> None:
        """Have what is read told to `to` first, see connection.Diversion."""
        ...

    def give_up(self, answer: "Answer") -> None:
        """Nobody wants the rest of this answer."""
        ...


class Answer:
    """One answer; whoever holds it closes it. It has one reader at a time. `whole` is its whole body, where that has
    come with the head, as most plain ones do: nothing more will be told of it."""

    __slots__ = (
        "_ahead", "_fault", "_held", "_pieces", "_size_bytes", "_source", "_waiter", "_whole",
        "fields", "framing", "length", "sink", "status",
    )  # fmt: skip

    def __init__(self, source: Source, head: AnswerHead, whole: bytes | None = None) -> None:
        self._source: Source | None = source if whole is None else None
        self.status = head.status
        self.fields = head.fields
        self.framing = head.framing
        self.length = head.length
        self.sink: Sink | None = None
        self._pieces: list[bytes] = [whole] if whole else []
        self._size_bytes = 0
        self._waiter: asyncio.Future[None] | None = None
        self._whole = whole is not None
        # A message: an exception that is kept keeps the frames of whoever it was raised in.
        self._fault: str | None = None
        self._ahead = False
        self._held = False

    @property
    def ended(self) -> bool:
        """Whether the whole body has come and has been taken."""
        return self._whole and not self._pieces

    def has_come(self) -> bool:
        """Whether a reader need not wait: there is payload, or will be none."""
        return bool(self._pieces) or self._whole or self._fault is not None

    def take(self) -> bytes:
        """Payload that has come and was not taken, b"" where there is none."""
        pieces = self._pieces
        if not pieces:
            return b""
        payload = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        self._size_bytes = 0
        if self._ahead:
            self._ahead = False
            self._steer()
        return payload

    async def read(self) -> bytes:
        """The next payload as it comes, b"" at the end of a whole answer. Raises BackendBroken."""
        while not self._pieces:
            if self._whole:
                return b""
            if self._fault is not None:
                raise BackendBroken(self._fault)
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self.take()

    def pour(self, sink: Sink) -> None:
        """Tell `sink` from now on; what has come already it is told at once. The fields are let go of: streams last
        long, and whoever passes this one on has passed its head on."""
        self.sink = sink
        self.fields = []
        if payload := self.take():
            sink.came(b"", payload)
        if self.sink is not sink:
            return  # it has closed the answer
        if self._whole:
            self.sink = None
            sink.ended()
        elif self._fault is not None:
            self.sink = None
            sink.broke(BackendBroken(self._fault))

    def pause(self) -> None:
        """Read no more from the engine's socket. What has been read already still comes."""
        self._held = True
        self._steer()

    def resume(self) -> None:
        """Read again."""
        self._held = False
        self._steer()

    def divert(self, to: Any) -> None:
        """Have what is read told to `to` first, see connection.Diversion. Only between two chunks."""
        if self._source is not None:
            self._source.divert(to)

    def close(self) -> None:
        """Give the answer up: its connection is closed at once unless the whole answer has come. A reader that waits
        gets BackendBroken; a sink is told nothing more."""
        source, self._source = self._source, None
        self.sink = None
        if source is not None:
            source.give_up(self)
            self._fault = "the answer was given up"
            self._wake()

    # ------------------------------------------------------------ told by the connection

    def gather(self, payload: bytes) -> None:
        """Payload has come and there is no sink."""
        self._pieces.append(payload)
        self._size_bytes += len(payload)
        if self._size_bytes > READ_AHEAD_BYTES and not self._ahead:
            self._ahead = True
            self._steer()
        if self._waiter is not None:
            self._wake()

    def conclude(self) -> None:
        """The whole answer has come."""
        self._whole = True
        self._source = None
        sink = self.sink
        if sink is not None:
            self.sink = None
            sink.ended()
        elif self._waiter is not None:
            self._wake()

    def break_off(self, fault: str) -> None:
        """No more will come."""
        self._fault = fault
        self._source = None
        sink = self.sink
        if sink is not None:
            self.sink = None
            sink.broke(BackendBroken(fault))
        else:
            self._wake()

    def _steer(self) -> None:
        if self._source is not None:
            self._source.steer(reading=not (self._held or self._ahead))

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

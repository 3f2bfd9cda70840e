"""Passes one judged answer on to the client: commit, bytes as they come, and an honest end whatever happens.

After commit nothing is retried. A stream that breaks ends with an error event in the client's dialect at an event
boundary and then abnormally, never with an invented finish. Why an answer was chosen is not here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from aiohttp import HttpVersion11, web

from proxy.errors import CrossoverError, FirstByteTimeout, StallTimeout, StreamCut, UpstreamError
from proxy.model import CloseReason, Dialect, Usage
from proxy.protocol import dialects, headers
from proxy.protocol.answers import read_answer
from proxy.protocol.hold import EventHold
from proxy.protocol.sse import Scanner
from proxy.wire.attempt import Opened
from proxy.wire.downstream import Downstream, open_response
from proxy.wire.stall import Side, StallGuard

# A plain answer is kept beside its passing on, up to this size, to read its usage; longer ones go unread.
READ_MAX_BYTES = 1024 * 1024
Stamps = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Patience:
    """Longest silences, in seconds: of the backend before the first data of its answer (a head and pings are none) and
    after it, and of a client that takes nothing."""

    first_byte_s: float
    stall_s: float
    unread_s: float


class Passage:
    """One answer on its way. `error` is what went wrong after commit; `usage` what the engine counted; `delivered` says
    that a stream's own end has been written, behind which clients may leave without a word.

    `sequences` is how many the answer holds: with one, a finish reason makes it complete even without an end mark.
    `on_bytes` is called whenever the backend has sent some: nothing says better that it lives.
    """

    def __init__(
        self,
        opened: Opened,
        dialect: Dialect,
        *,
        sequences: int,
        limits: Patience,
        clock: Callable[[], float],
        on_bytes: Callable[[], None],
    ) -> None:
        self.opened = opened
        self.committed = False
        self.error: CrossoverError | None = None
        self._dialect = dialect
        self._alone = sequences == 1
        self._limits = limits
        self._clock = clock
        self._on_bytes = on_bytes
        self._hold = EventHold(dialect) if opened.scanner is not None else None
        self._kept: list[bytes] = []
        self._kept_bytes = 0
        self.delivered = False
        self._begun = False
        self._first_s: float | None = None
        self._last_s = 0.0

    async def run(self, request: web.BaseRequest, stamps: Stamps) -> web.StreamResponse:
        """Pass the whole answer on. Raises ConnectionError when the client is gone; a backend's failure ends up in
        `error` and in the client's stream."""
        answer = self.opened.answer
        response = open_response(answer.status, headers.downstream_headers(answer.headers), stamps)
        if request.version < HttpVersion11 and "Content-Length" not in response.headers:
            response.force_close()  # such a client knows the end only by the closing
        limits = self._limits
        backend = Side(limits.first_byte_s, answer.close)
        guard = StallGuard(backend, Side(limits.unread_s, partial(_drop, request)), least_s=limits.stall_s)
        try:
            await response.prepare(request)
            self.committed = True
            await self._pump(response, guard, backend)
        except UpstreamError as error:
            stalled = self._stalled() if guard.stalled is backend else error
            guard.came()  # what is left is to tell the client
            if self.error is not None or not self._ended:
                await self._break(response, self.error or stalled)
        finally:
            guard.close()
            answer.close()
        return response

    def end(self, error: CrossoverError) -> None:
        """Break the passage off from outside: the client is told `error`."""
        self.error = error
        self.opened.answer.close()

    @property
    def usage(self) -> Usage:
        """Token counts of the answer so far."""
        scanner = self.opened.scanner
        if scanner is not None:
            return scanner.usage
        return read_answer(b"".join(self._kept), self._dialect) if self._kept else Usage()

    @property
    def _ended(self) -> bool:
        """Whether a stream's own end has come: what happens to the connection behind it costs nobody a word."""
        return self.opened.scanner is not None and self.opened.scanner.ended

    @property
    def complained(self) -> bool:
        """Whether the engine reported an error inside its stream."""
        scanner = self.opened.scanner
        return scanner is not None and scanner.error is not None

    def ttft_s(self, since_s: float) -> float | None:
        """Seconds from `since_s` to the first content written; None before it, and for plain answers."""
        return None if self._first_s is None else self._first_s - since_s

    def tpot_s(self) -> float | None:
        """Seconds per output token after the first content; None without usage or below two tokens."""
        if self._first_s is None or (tokens := self.usage.completion_tokens) < 2:
            return None
        return (self._last_s - self._first_s) / (tokens - 1)

    def _stalled(self) -> UpstreamError:
        if self._begun:
            return StallTimeout(f"the backend sent nothing for timeouts.stall_s ({self._limits.stall_s:g} s)")
        within = f"timeouts.first_byte_s ({self._limits.first_byte_s:g} s)"
        return FirstByteTimeout(f"the backend sent a head and then no data within {within}")

    def _note_data(self, backend: Side) -> None:
        """From the first data on an engine is at work on this very answer, and shorter silences say that it hangs."""
        if not self.opened.mute:
            self._begun = True
            backend.limit_s = self._limits.stall_s

    async def _pump(self, response: Downstream, guard: StallGuard, backend: Side) -> None:
        for data in self.opened.peeked:
            await self._push(response, data, scanned=True)
            self._note_data(backend)
        read = self.opened.answer.read
        began_s = guard.now_s()
        while not self.opened.whole:
            guard.waiting(None if self._begun else began_s)  # pings do not put the end of a mute stream off
            data = await read()
            guard.came()
            if not data:
                break
            await self._push(response, data)
            if not self._begun:
                self._note_data(backend)
            if self._begun:
                self._on_bytes()
        if self.opened.scanner is not None:
            self.opened.scanner.close()
            self._check_end(self.opened.scanner)
        if self._hold is not None and (rest := self._hold.rest()):
            await response.write(rest)

    async def _push(self, response: Downstream, data: bytes, *, scanned: bool = False) -> None:
        scanner, hold = self.opened.scanner, self._hold
        if scanner is None or hold is None:
            self._keep(data)
            await response.write(data)
            return
        if not scanned:
            scanner.feed(data)
        ready = hold.feed(data)
        if ready:
            await response.write(ready)
        self.delivered = scanner.ended
        if scanner.first_content:
            self._last_s = self._clock()
            if self._first_s is None:
                self._first_s = self._last_s

    def _keep(self, data: bytes) -> None:
        self._kept_bytes += len(data)
        if self._kept_bytes <= READ_MAX_BYTES:
            self._kept.append(data)
        else:
            self._kept.clear()

    def _check_end(self, scanner: Scanner) -> None:
        """Complete is a stream with its dialect's end, or its finish reason, or an error that says why not."""
        if scanner.ended or scanner.gave_up or scanner.error is not None or (self._alone and scanner.finished):
            return
        raise StreamCut("the backend ended its stream before the answer was complete")

    async def _break(self, response: Downstream, error: CrossoverError) -> None:
        self.error = error
        scanner, hold = self.opened.scanner, self._hold
        told = scanner is not None and hold is not None and not hold.overflowed
        if told and scanner is not None:
            await response.write(dialects.error_event(error, self._dialect, sequence_number=scanner.events))
        response.cut(told=told)


class _Droppable(Protocol):
    def drop(self, reason: CloseReason) -> None: ...


def _drop(request: web.BaseRequest) -> None:
    """Close a client's connection now: it is then gone like any other that leaves."""
    protocol: _Droppable = request.protocol  # type: ignore[assignment]
    protocol.drop(CloseReason.UNREAD)

"""Passes one judged answer on to the client: commit, bytes as they come, and an honest end whatever happens.

No coroutine runs for a chunk: the backend's connection hands its bytes to the passage, and the passage writes them to
the client, in the very chunks in which they came where these hold whole events. After commit nothing is retried. A
stream that breaks ends with an error event in the client's dialect at an event boundary and then abnormally, never with
an invented finish. Why an answer was chosen is not here.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from proxy.errors import CrossoverError, FirstByteTimeout, StallTimeout, StreamCut, UpstreamError
from proxy.model import Dialect, Usage
from proxy.protocol import dialects, headers
from proxy.protocol.answer_head import Framing
from proxy.protocol.answers import read_answer, read_made
from proxy.protocol.hold import EventHold
from proxy.protocol.sse import Scanner
from proxy.wire.attempt import Opened
from proxy.wire.client import Client
from proxy.wire.downstream import Downstream
from proxy.wire.express import Express
from proxy.wire.request import Request
from proxy.wire.stall import StallGuard

# A plain answer is kept beside its passing on, up to this size, to read its usage; longer ones go unread.
READ_MAX_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Patience:
    """Longest silences of the backend, in seconds: before the first data of its answer (a head and pings are none) and
    after it."""

    first_byte_s: float = 600.0
    stall_s: float = 300.0


class Passage:
    """One answer on its way. `error` is what went wrong after commit; `usage` what the engine counted; `delivered` says
    that the answer's own end has been written, behind which clients may leave without a word; `held_up` that the
    backend had to wait for the client.

    `sequences` is how many the answer holds: with one, a finish reason makes it complete even without an end mark.
    `on_bytes` is called whenever the backend has sent some: nothing says better that it lives.
    """

    __slots__ = (
        "_alone",
        "_begun",
        "_client",
        "_clock",
        "_dialect",
        "_express",
        "_first_s",
        "_flows",
        "_guard",
        "_hold",
        "_kept",
        "_kept_bytes",
        "_last_s",
        "_limits",
        "_on_bytes",
        "_out",
        "_over",
        "_scanner",
        "_written",
        "committed",
        "error",
        "held_up",
        "opened",
    )

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
        self.committed = self.held_up = False
        self.error: CrossoverError | None = None
        self._dialect = dialect
        self._alone = sequences == 1
        self._limits = limits
        self._clock = clock
        self._on_bytes = on_bytes
        self._scanner: Scanner | None = opened.scanner
        self._hold = EventHold(dialect) if opened.scanner is not None else None
        self._kept: list[bytes] = []
        self._kept_bytes = 0
        self._begun = False
        self._first_s: float | None = None
        self._last_s = float("-inf")
        self._written = False
        self._flows = False  # content does, in whole events
        self._express: Express | None = None  # there since it first could
        self._out: Downstream
        self._client: Client
        self._guard: StallGuard | None = None
        self._over: asyncio.Future[None] | None = None

    async def run(self, request: Request, stamps: bytes) -> None:
        """Pass the whole answer on. Raises ConnectionError when the client is gone; a backend's failure ends up in
        `error` and in the client's stream."""
        answer = self.opened.answer
        out = self._out = Downstream(request)
        try:
            length = answer.length if answer.framing is Framing.LENGTH else None
            out.begin(answer.status, headers.downstream_fields(answer.fields), length=length, stamps=stamps)
            self.committed = True
            for data in self.opened.peeked:
                self._push(b"", data, scanned=True)
                self._note_data()
            # Most plain answers have come whole by now, and those need no clock to watch them.
            if not self.opened.whole and (data := answer.take()):
                self._came_first(data)
            if self.error is not None or self.opened.whole or answer.ended:
                self._conclude(self.error)
            else:
                await self._follow(request)
            if out.full:
                await out.drain()
        finally:
            answer.close()
            self._on_bytes = _nothing
            if self._express is not None:
                self._express.retire()

    def end(self, error: CrossoverError) -> None:
        """Break the passage off from outside: the client is told `error`, unless it has been told the end already."""
        if self._over is not None and self._over.done():
            return
        self.error = error
        self.opened.answer.close()
        self._finish(error)

    # ------------------------------------------------------------ facts

    @property
    def delivered(self) -> bool:
        """See the class."""
        return self._written or (self._scanner is not None and self._scanner.ended)

    @property
    def usage(self) -> Usage:
        """Token counts of the answer so far."""
        scanner = self._scanner
        if scanner is not None:
            return scanner.usage
        return read_answer(b"".join(self._kept), self._dialect) if self._kept else Usage()

    @property
    def made(self) -> str | None:
        """The id of the response that the engine may have stored, as soon as it is known; None without one."""
        if self._scanner is not None:
            return self._scanner.made
        return read_made(b"".join(self._kept)) if self._dialect is Dialect.RESPONSES and self._kept else None

    @property
    def complained(self) -> bool:
        """Whether the engine reported an error inside its stream."""
        return self._scanner is not None and self._scanner.error is not None

    @property
    def heard_at_s(self) -> float | None:
        """When its newest data came; None before any, of which a head and pings are none."""
        return self._heard_s() if self._begun else None

    def ttft_s(self, since_s: float) -> float | None:
        """Seconds from `since_s` to the first content written; None before it, and for plain answers."""
        return None if self._first_s is None else self._first_s - since_s

    def tpot_s(self, tokens: int) -> float | None:
        """Seconds per output token after the first content, of `tokens` in all; None for fewer than two."""
        if self._first_s is None or tokens < 2:
            return None
        return (self._heard_s() - self._first_s) / (tokens - 1)

    # ------------------------------------------------------------ bytes, as the backend's connection hands them over

    def came(self, framed: bytes, payload: bytes) -> None:
        """See Sink.came."""
        try:
            if self._begun:
                self._push(framed, payload)
                self._last_s = self._clock()
                self._on_bytes()
                if framed and self._flows:
                    self._open_express()
            else:
                self._came_first(payload)
        except Exception as defect:  # noqa: BLE001 - no fault of the backend, whose connection would take it for one
            self.opened.answer.close()
            self._fail(defect)

    def ended(self) -> None:
        """See Sink.ended."""
        self._finish(None)

    def broke(self, error: UpstreamError) -> None:
        """See Sink.broke."""
        self._finish(error)

    def _push(self, framed: bytes, payload: bytes, *, scanned: bool = False) -> None:
        scanner, hold, out = self._scanner, self._hold, self._out
        if scanner is None or hold is None:
            self._keep(payload)
            ready = payload
        else:
            if not scanned:
                scanner.feed(payload)
            ready = hold.feed(payload)
        if framed and ready is payload and out.chunked:
            out.pass_framed(framed)
        elif ready:
            out.write(ready)
        if scanner is not None and scanner.first_content:
            if self._first_s is None:
                self._first_s = self._clock()
            # Events of responses are counted, which only the scanner does.
            counted = self._dialect is Dialect.RESPONSES
            self._flows = ready is payload and out.chunked and scanner.at_boundary and not (counted or scanner.ended)

    def _open_express(self) -> None:
        """Let the events that follow take the shortest way, as long as they are of the common kind."""
        if self._express is None:
            self._express = Express(self._client, self._dialect, clock=self._clock, lives=self._on_bytes)
        self.opened.answer.divert(self._express)

    def _heard_s(self) -> float:
        """When the newest data came, by either way."""
        return self._last_s if self._express is None else max(self._last_s, self._express.at_s)

    def _came_first(self, payload: bytes) -> None:
        """Bytes while no data had come. Pings do not put the end of a mute stream off, nor speak for the engine."""
        self._push(b"", payload)
        self._note_data()
        if self._begun:
            self._on_bytes()

    def _note_data(self) -> None:
        """From the first data on an engine is at work on this very answer, and shorter silences say that it hangs."""
        if not self.opened.mute:
            self._begun = True
            self._last_s = self._clock()
            if self._guard is not None:
                self._guard.limit_s = self._limits.stall_s

    def _keep(self, payload: bytes) -> None:
        self._kept_bytes += len(payload)
        if self._kept_bytes <= READ_MAX_BYTES:
            self._kept.append(payload)
        else:
            self._kept.clear()

    # ------------------------------------------------------------ to its end

    async def _follow(self, request: Request) -> None:
        """Until the answer is over, one way or another."""
        answer, out, limits = self.opened.answer, self._out, self._limits
        self._client = request.client
        out.flush()
        self._over = asyncio.get_running_loop().create_future()
        limit_s = limits.stall_s if self._begun else limits.first_byte_s
        clock, heard_s, least_s = self._clock, self._heard_s, limits.stall_s
        guard = self._guard = StallGuard(limit_s, self._stall, clock=clock, heard_s=heard_s, least_s=least_s)
        out.on_full, out.on_room = self._full, self._room
        try:
            if out.full:
                self._full()
            answer.pour(self)
            await self._over
        finally:
            guard.close()
            self._guard = None
            out.on_full = out.on_room = None

    @property
    def waits_for_client(self) -> bool:
        """Whether the client has to take something before more is read."""
        return self._out.full

    def _full(self) -> None:
        self.held_up = True
        self.opened.answer.pause()
        if self._guard is not None:
            self._guard.full()

    def _room(self) -> None:
        if self._guard is not None:
            self._guard.room()
        self.opened.answer.resume()

    def _stall(self) -> None:
        self.opened.answer.close()
        self._finish(self._stalled())

    def _stalled(self) -> UpstreamError:
        if self._begun:
            return StallTimeout(f"the backend sent nothing for timeouts.stall_s ({self._limits.stall_s:g} s)")
        within = f"timeouts.first_byte_s ({self._limits.first_byte_s:g} s)"
        return FirstByteTimeout(f"the backend sent a head and then no data within {within}")

    def _finish(self, error: CrossoverError | None) -> None:
        """The answer is over; only the first word counts."""
        over = self._over
        if over is None or over.done():
            return
        try:
            self._conclude(error)
        except Exception as defect:  # noqa: BLE001 - unsaid, it would leave the request waiting
            self._fail(defect)
        else:
            over.set_result(None)

    def _fail(self, defect: Exception) -> None:
        """Something of ours is broken: the request, which has called nothing here, is told."""
        if self._over is not None and not self._over.done():
            self._over.set_exception(defect)

    def _conclude(self, error: CrossoverError | None) -> None:
        """Write the end that the answer deserves. What breaks behind a stream's own end costs nobody a word."""
        scanner = self._scanner
        if error is None and scanner is not None:
            scanner.close()
            error = self._cut_short(scanner)
        elif error is not None and self.error is None and scanner is not None and scanner.ended:
            error = None
        if error is not None:
            self._break(error)
            return
        if self._hold is not None and (rest := self._hold.rest()):
            self._out.write(rest)
        self._out.end()
        self._written = True

    def _cut_short(self, scanner: Scanner) -> UpstreamError | None:
        """Complete is a stream with its dialect's end, or its finish reason, or an error that says why not."""
        if scanner.ended or scanner.gave_up or scanner.error is not None or (self._alone and scanner.finished):
            return None
        return StreamCut("the backend ended its stream before the answer was complete")

    def _break(self, error: CrossoverError) -> None:
        self.error = error
        scanner, hold = self._scanner, self._hold
        told = False
        if scanner is not None and hold is not None and not hold.overflowed:
            event = dialects.error_event(error, self._dialect, sequence_number=scanner.events)
            told = self._out.stays_short_with(len(event))
            if told:
                self._out.write(event)
        self._out.cut(told=told)


def _nothing() -> None:
    """In place of a callback that would keep whoever keeps the passage."""

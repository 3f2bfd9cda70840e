"""Probes one backend and hands what it learns to the desk. What the evidence means is pure and in routing/health.py.

`/ready` is asked often: on SGLang it only reads flags. `/health` is not cheap there: it runs a generation, takes a
second at least, and ones that time out pile up in the scheduler. So it is asked rarely, alone and with patience: when
`/ready` says no (an engine marked unhealthy stays so until a `/health` succeeds), does not exist (before 0.5.20), or is
not to be believed: its flags stay green over a dead scheduler, which shows by generations without a first byte.

A probe that is late is no miss yet, but with nothing else from the engine since it was sent the engine is silent.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial

from proxy.dispatch import Desk
from proxy.errors import BackendUnreachable, FirstByteTimeout, OutOfSockets, UpstreamError
from proxy.protocol.routes import EngineKind
from proxy.routing.health import Evidence
from proxy.routing.silence import late_s
from proxy.state.backend import Backend
from proxy.wire.control import Control, Reply

# SGLang gives its own health generation 20 s; a probe that gives up earlier leaves an orphan in the scheduler.
DEEP_PROBE_S = 25.0
# Least time between two `/health` calls to one SGLang, and between two looks for a `/ready` that was not there: another
# version may have been started since.
DEEP_EVERY_S = 10.0
# An answer is late after a second at least, of the page that generates after five: sooner, and an engine that stands
# still for one long step is silent each time; later, and a frozen one is sent all that comes meanwhile.
LATE_S, DEEP_LATE_S = 1.0, 5.0
# Answers that tell how long one takes: a minute of them by default, so that a busy time is remembered while it lasts.
REMEMBERED = 60
# How long at once a late answer is waited for. A step that ends later than by as much was held up by this process, and
# the answer may lie unread: less, and every hiccup would count as one; more, and one standstill could be all of LATE_S.
STEP_S = 0.25


class HealthProbe:
    """Asks one backend every `interval_s` whether it serves; `timeout_s` is for the cheap question."""

    def __init__(
        self, desk: Desk, backend: Backend, control: Control, engine: EngineKind, *, interval_s: float, timeout_s: float
    ) -> None:
        self._desk = desk
        self._backend = backend
        self._control = control
        self._engine = engine
        self._interval_s = interval_s
        self._timeout_s = timeout_s
        self._took_s: deque[float] = deque(maxlen=REMEMBERED)
        self._deep_took_s: deque[float] = deque(maxlen=REMEMBERED)
        self._deep_at_s = float("-inf")
        self._no_ready_until_s = float("-inf") if engine is EngineKind.SGLANG else float("inf")

    async def run(self) -> None:
        """Probe until cancelled."""
        while True:
            self.tell(await self.probe())
            await asyncio.sleep(self._interval_s)

    async def probe(self) -> Evidence | None:
        """Ask once; None when there is nothing new to tell."""
        now_s = self._desk.clock()
        if self._backend.health.doubtful or now_s < self._no_ready_until_s:
            return await self._ask_health()
        try:
            reply = await self._ask("/ready")
        except UpstreamError as error:
            return _missed(error)
        if reply.status in (404, 405):
            self._no_ready_until_s = now_s + DEEP_EVERY_S
            return await self._ask_health()
        if reply.status == 503:
            return await self._doubt()
        if self._backend.health.doubtful:
            return None  # since it was asked, and the page that was asked is the one that is not believed
        return Evidence.HIT if reply.status < 500 else Evidence.MISS

    async def _ask(self, path: str, *, deep: bool = False) -> Reply:
        """GET a page; the desk learns when an answer is due, when it is late, and whether one came."""
        took_s, least_s = (self._deep_took_s, DEEP_LATE_S) if deep else (self._took_s, LATE_S)
        within_s = DEEP_PROBE_S if deep else self._timeout_s
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        self._desk.listen(self._backend)
        due_s = late_s(took_s, least_s, within_s)
        late = Late(due_s, partial(self._desk.unanswered, self._backend))
        try:
            reply = await self._control.get(path, within_s=within_s)
        except OutOfSockets:
            raise  # nobody was asked
        except FirstByteTimeout:
            if late.ran():  # else it was we who stood still
                self._desk.gave_up(self._backend)
            raise
        except UpstreamError:
            self._desk.turned_away(self._backend)
            raise
        finally:
            late.cancel()
        # Of a late one no more than that: a page that has become slow is known after some, and a frozen engine that
        # goes on, or a standstill of this process, does not keep the next from being found.
        took_s.append(min(loop.time() - began_s, due_s))
        self._desk.spoke(self._backend)
        return reply

    async def _ask_health(self) -> Evidence | None:
        if self._engine is EngineKind.SGLANG:
            return await self._deep()
        openai = self._engine is EngineKind.OPENAI
        try:
            reply = await self._ask("/v1/models" if openai else "/health")
        except UpstreamError as error:
            return _missed(error)
        # Of a server that is only known to speak the API, any answer but a failure shows that it serves.
        return Evidence.HIT if reply.status < (500 if openai else 400) else Evidence.NOT_READY

    async def _doubt(self) -> Evidence | None:
        """`/ready` says no: starting, draining, paused, or marked unhealthy by a probe that starved."""
        deep = await self._deep()
        return Evidence.NOT_READY if deep is None else deep

    async def _deep(self) -> Evidence | None:
        now_s = self._desk.clock()
        if now_s - self._deep_at_s < DEEP_EVERY_S:
            return None
        self._deep_at_s = now_s
        try:
            reply = await self._ask("/health", deep=True)
        except UpstreamError as error:
            if isinstance(error, BackendUnreachable | OutOfSockets):
                # Nothing was started there, so asking again soon costs nothing; and what comes back may be another.
                self._deep_at_s = self._no_ready_until_s = float("-inf")
            return _missed(error)
        return Evidence.HIT if reply.status < 400 else Evidence.NOT_READY

    def tell(self, evidence: Evidence | None) -> None:
        """Hand evidence to the desk; None says nothing."""
        if evidence is not None:
            self._desk.observe_health(self._backend, evidence)


class Late:
    """Calls `tell` once, after `late_s` seconds in which this process has run."""

    def __init__(self, late_s: float, tell: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._left_s = late_s
        self._tell = tell
        self._told = self._held_up = False
        self._due_s = self._loop.time()
        self._wait()

    def cancel(self) -> None:
        """Call nobody."""
        self._timer.cancel()

    def ran(self) -> bool:
        """Whether this process has run for so long, or all the while where no connection came in less. The time may be
        over in this turn, whichever timer comes first."""
        if not self._told and self._loop.time() >= self._due_s:
            self._timer.cancel()
            self._look()
        return self._told or not self._held_up

    def _wait(self) -> None:
        self._step_s = min(self._left_s, STEP_S)
        self._due_s += self._step_s
        self._timer = self._loop.call_at(self._due_s, self._look)

    def _look(self) -> None:
        now_s = self._loop.time()
        if now_s - self._due_s > STEP_S:
            self._due_s, self._held_up = now_s, True
        else:
            self._left_s -= self._step_s
        if self._left_s > 0.0:
            self._wait()
        else:
            self._told = True
            self._tell()


def _missed(error: UpstreamError) -> Evidence | None:
    """What a failed probe says; None where it failed for want of what is the proxy's own."""
    if isinstance(error, OutOfSockets):
        return None
    return Evidence.REFUSED if isinstance(error, BackendUnreachable) else Evidence.MISS

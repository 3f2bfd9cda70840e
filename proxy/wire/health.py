"""Probes one backend and hands what it learns to the desk. What the evidence means is pure and in routing/health.py.

`/ready` is asked often: on SGLang it only reads flags. `/health` is not cheap there: it runs a generation, takes a
second at least, and ones that time out pile up in the scheduler. So it is asked rarely, alone and with patience: when
`/ready` says no (an engine marked unhealthy stays so until a `/health` succeeds), does not exist (before 0.5.20), or is
not to be believed: its flags stay green over a dead scheduler, which shows by generations without a first byte.
"""

import asyncio

from proxy.dispatch import Desk
from proxy.errors import BackendUnreachable, UpstreamError
from proxy.protocol.routes import EngineKind
from proxy.routing.health import Evidence
from proxy.state.backend import Backend
from proxy.wire.control import Control

# SGLang gives its own health generation 20 s; a probe that gives up earlier leaves an orphan in the scheduler.
DEEP_PROBE_S = 25.0
# Least time between two `/health` calls to one SGLang, and between two looks for a `/ready` that was not there: another
# version may have been started since.
DEEP_EVERY_S = 10.0


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
            reply = await self._control.get("/ready", within_s=self._timeout_s)
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

    async def _ask_health(self) -> Evidence | None:
        if self._engine is EngineKind.SGLANG:
            return await self._deep()
        openai = self._engine is EngineKind.OPENAI
        try:
            reply = await self._control.get("/v1/models" if openai else "/health", within_s=self._timeout_s)
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
            reply = await self._control.get("/health", within_s=DEEP_PROBE_S)
        except UpstreamError as error:
            if isinstance(error, BackendUnreachable):
                # Nothing was started there, so asking again soon costs nothing; and what comes back may be another.
                self._deep_at_s = self._no_ready_until_s = float("-inf")
            return _missed(error)
        return Evidence.HIT if reply.status < 400 else Evidence.NOT_READY

    def tell(self, evidence: Evidence | None) -> None:
        """Hand evidence to the desk; None says nothing."""
        if evidence is not None:
            self._desk.observe_health(self._backend, evidence)


def _missed(error: UpstreamError) -> Evidence:
    return Evidence.REFUSED if isinstance(error, BackendUnreachable) else Evidence.MISS

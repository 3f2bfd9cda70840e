"""Asks one engine what it runs: limits and facts once, its own load again and again, for `auto` limits and drift.

Decisions are made on the proxy's own count; an engine's numbers are late by up to fifteen decode steps: they check it.
"""

import asyncio
from collections.abc import Callable

from proxy.dispatch import Desk
from proxy.errors import UpstreamError
from proxy.model import EngineFacts, EngineLoad
from proxy.protocol import engines
from proxy.protocol.routes import EngineKind
from proxy.state.backend import Backend
from proxy.wire.control import Control, Reply

# `/server_info` asks SGLang's scheduler and may wait behind a long step: not to be asked at every poll of an engine
# that has no load to tell.
FACTS_EVERY_S = 10.0


class EnginePoll:
    """Polls one backend every `interval_s`. `on_facts` is called with each new set of facts."""

    def __init__(
        self,
        desk: Desk,
        backend: Backend,
        control: Control,
        engine: EngineKind,
        *,
        interval_s: float,
        timeout_s: float,
        on_facts: Callable[[Backend], None],
    ) -> None:
        self._desk = desk
        self._backend = backend
        self._control = control
        self._engine = engine
        self._interval_s = interval_s
        self._timeout_s = timeout_s
        self._on_facts = on_facts
        self._answered = False
        self._known = False
        self._facts_at_s = float("-inf")
        self._failed = False

    async def run(self) -> None:
        """Poll until cancelled. What breaks in one poll is told once, and the next is made all the same: an engine that
        is polled no more looks as it last was for ever."""
        while True:
            try:
                await self.poll()
            except Exception as defect:  # noqa: BLE001 - of ours or in what an engine said: either way one poll is lost
                self._tell(defect)
            else:
                self._failed = False
            await asyncio.sleep(self._interval_s)

    def _tell(self, defect: Exception) -> None:
        if not self._failed:
            told = {"message": f"a poll of the {self._backend.role} engine failed", "exception": defect}
            asyncio.get_running_loop().call_exception_handler(told)
        self._failed = True

    async def poll(self) -> None:
        """Ask once. Facts are read anew when the engine answers again after silence: it may be another version."""
        load = await self._ask_load()
        if load is not None and not self._answered:
            self._known, self._facts_at_s = False, float("-inf")
        self._answered = load is not None
        if load is None or not self._known:
            await self._read_facts()
        if load is not None:
            self._desk.observe_load(self._backend, load)

    async def _read_facts(self) -> None:
        if self._desk.clock() - self._facts_at_s < FACTS_EVERY_S:
            return
        self._facts_at_s = self._desk.clock()
        facts = await self._ask_facts()
        self._known = facts is not None
        if facts is not None and facts != self._backend.facts:
            self._desk.learn_facts(self._backend, facts)
            self._on_facts(self._backend)

    async def _ask_facts(self) -> EngineFacts | None:
        if self._engine is EngineKind.SGLANG:
            reply = await self._ask("/server_info")
            return None if reply is None else engines.parse_server_info(reply.body)
        if self._engine is EngineKind.LLAMACPP:
            reply, slots = await self._ask("/props"), await self._ask("/slots")
            return None if reply is None else engines.parse_props(reply.body, b"" if slots is None else slots.body)
        reply = await self._ask("/v1/models")
        return None if reply is None else engines.parse_models(reply.body)

    async def _ask_load(self) -> EngineLoad | None:
        if self._engine is EngineKind.OPENAI:
            return None
        if self._engine is EngineKind.SGLANG:
            reply = await self._ask("/v1/loads?include=core,spec,queues")
            return None if reply is None else engines.parse_loads(reply.body)
        reply = await self._ask("/metrics")
        load = None if reply is None else engines.parse_metrics(reply.body.decode("utf-8", "replace"))
        if load is None and self._engine is EngineKind.LLAMACPP:
            # `/metrics` takes a flag there, `/slots` is on unless it was turned off.
            reply = await self._ask("/slots")
            load = None if reply is None else engines.parse_slots(reply.body)
        return load

    async def _ask(self, path: str) -> Reply | None:
        try:
            reply = await self._control.get(path, within_s=self._timeout_s)
        except UpstreamError:
            return None
        self._desk.spoke(self._backend)
        return reply if reply.status == 200 else None

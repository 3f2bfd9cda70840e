"""The real proxy on a loop that never sleeps, between a client and an engine that are bytes in memory.

One proxy serves all executions of a process; what one leaves behind is put back by `fresh`. Not here: any property.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from unittest.mock import patch

from fakes.proxy import settings
from fakes.waiting import LeapingLoop
from fuzz.pipes import Engine, Pipe

from proxy import logs
from proxy.app import App, Phase
from proxy.hearing import Record
from proxy.plan import line_rules
from proxy.routing import retries
from proxy.routing.blackhole import FailureWeight
from proxy.routing.breaker import Circuit
from proxy.routing.health import Health

# Shorter than any timer of the proxy: a sleep this long ends when all else only waits.
MOMENT_S = 1e-5


class House:
    """One proxy, its engine, and the loop they live on."""

    def __init__(self) -> None:
        self.loop = LeapingLoop()
        self.complaints: list[str] = []
        self.loop.set_exception_handler(lambda _, context: self.complaints.append(str(context)))
        self.engine = Engine()
        self.app: App = self.loop.run_until_complete(self._built())

    async def _built(self) -> App:
        chosen = settings("http://a:1", "http://b:1", listen={"max_body_bytes": 5000})
        # Silences are measured by the proxy's own clock: it has to leap with the loop.
        with patch("proxy.app.time", SimpleNamespace(monotonic=self.loop.time, time=time.time)):
            app = App(chosen, logs.configure("json", chosen.log.level), lambda: chosen)
        app.phase = Phase.SERVING
        for line in app.pair.connect(line_rules(chosen)):
            self.engine.serve(line.upstream)
        return app

    def run(self, scenario: Callable[["House"], Awaitable[None]]) -> None:
        """Run one scenario to its end; raises what it raises."""
        self.complaints.clear()
        self.loop.run_until_complete(self._run(scenario))

    async def _run(self, scenario: Callable[["House"], Awaitable[None]]) -> None:
        self.fresh()
        try:
            await scenario(self)
        finally:
            self.engine.forget()
            await asyncio.sleep(MOMENT_S)  # sleeps: on a loop that never does

    def fresh(self) -> None:
        """Forget what earlier requests have taught the proxy."""
        desk = self.app.desk
        desk.budget = retries.full(desk.plan.retries)
        self.app.relay.record = Record()
        self.app.informer._models = None
        for backend in desk.backends:
            backend.circuit, backend.health, backend.failures = Circuit(), Health(up=True), FailureWeight()
            backend.recovered_at_s = None

    def connect(self, *, slow: bool = False) -> Pipe:
        """A client's connection."""
        client = self.app._front()
        pipe = Pipe(client, slow=slow)
        client.connection_made(pipe)
        return pipe

    async def moment(self) -> None:
        """Let everything run that can."""
        await asyncio.sleep(MOMENT_S)  # sleeps: on a loop that never does

    async def wait(self, seconds: float) -> None:
        """Let every timer within `seconds` come due."""
        await asyncio.sleep(seconds)  # sleeps: on a loop that never does

    def close(self) -> None:
        """Close every connection and the loop."""
        self.loop.run_until_complete(self.app.pair.stop())
        self.loop.close()


_HOUSES: list[House] = []


def house() -> House:
    """The one of this process, made at its first use."""
    if not _HOUSES:
        _HOUSES.append(House())
    return _HOUSES[0]


def leave() -> None:
    """Close it, if it was made."""
    while _HOUSES:
        _HOUSES.pop().close()

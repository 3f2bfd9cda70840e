"""Two fake engines with the running proxy before them, and what became of every request; empty books at the end."""

import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from fakes.engine import FakeEngine, Script, either
from fakes.proxy import running, settings
from fakes.raw import Said, ask, chat, request
from fakes.until import until

from proxy.app import App
from proxy.model import RequestFacts, Role
from proxy.routing.breaker import Circuit


@dataclass
class Stage:
    """`a` is the speculative engine, asked first; `b` the baseline."""

    a: FakeEngine
    b: FakeEngine
    app: App
    ended: list[RequestFacts] = field(default_factory=list)

    async def ask(self, *lines: str, stream: bool = False, target: str = "/v1/chat/completions") -> Said:
        """One chat request over a connection of its own."""
        return await ask(self.app.port, request(target, chat(stream=stream), *lines))

    async def ended_one(self) -> RequestFacts:
        """The facts of the first request that ended."""
        await until(lambda: self.ended, what="the end of a request")
        return self.ended[0]

    def circuit(self, role: Role = Role.SPECULATIVE) -> Circuit:
        return self.app.desk.backend(role).circuit

    @property
    def in_flight(self) -> int:
        return self.app.desk.snapshot().in_flight


@contextlib.asynccontextmanager
async def staged(
    a: Script = either,
    b: Script = either,
    *,
    host: str = "127.0.0.1",
    max_in_flight: int | tuple[int, int] = 256,
    **sections: Mapping[str, Any] | str,
) -> AsyncIterator[Stage]:
    """Everything started. At the end no sequence may be in flight and no request under way."""
    most_a, most_b = (max_in_flight, max_in_flight) if isinstance(max_in_flight, int) else max_in_flight
    async with (
        FakeEngine(script=a, host=host, max_running_requests=most_a) as first,
        FakeEngine(role="baseline", script=b, host=host, max_running_requests=most_b) as second,
        running(settings(first.url, second.url, **sections)) as app,
    ):
        stage = Stage(first, second, app)
        told = app.relay.on_end

        def note(facts: RequestFacts) -> None:
            stage.ended.append(facts)
            told(facts)

        app.relay.on_end = note
        yield stage
        await until(lambda: not app.relay.trips, what="the end of every request")
        await until(lambda: stage.in_flight == 0, what="in flight back to zero")

"""Engines that take connections while they stand still, and go on with all of them afterwards; on a leaping loop."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from unittest.mock import patch

from fakes.engine import Exchange
from fakes.failing import Paged
from fakes.stage import Stage, staged
from fakes.until import until

from proxy.model import Role

PROBED = {"interval_s": 1.0, "timeout_s": 5.0}
# A probe begins within one interval; each of the three that are missed takes its whole limit and the pause behind it.
DOWN_WITHIN_S = 19.0
# One more missed probe, with the pause before it.
A_PROBE_S = PROBED["interval_s"] + PROBED["timeout_s"]
Went = asyncio.Task[tuple[str | None, str | None]]


@dataclass(eq=False)
class Freezing(Paged):
    """`stuck` are the exchanges that came while it stood still. Its pages may have scripts of their own."""

    moves: asyncio.Event = field(default_factory=asyncio.Event)
    stuck: list[Exchange] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.moves.set()

    async def _serve(self, exchange: Exchange) -> None:
        if not self.moves.is_set():
            self.stuck.append(exchange)
        await self.moves.wait()
        await super()._serve(exchange)

    def asked(self) -> list[Exchange]:
        """Clients' requests among those that are stuck."""
        return [each for each in self.stuck if each.request.method == "POST"]


@asynccontextmanager
async def freezing(**sections: object) -> AsyncIterator[tuple[Stage, Freezing, Freezing]]:
    """Both engines have answered their probes for some seconds."""
    with patch("fakes.stage.FakeEngine", Freezing):
        async with staged(health=PROBED, **sections) as stage:  # type: ignore[arg-type]
            assert isinstance(stage.a, Freezing) and isinstance(stage.b, Freezing)
            await asyncio.sleep(5.5)  # sleeps: on a leaping loop
            yield stage, stage.a, stage.b


async def went(stage: Stage, *lines: str) -> tuple[str | None, str | None]:
    """Where a request went, and why."""
    said = await stage.ask(*lines)
    return said.header("x-crossover-backend"), said.header("x-crossover-reason")


def down(stage: Stage, role: Role = Role.SPECULATIVE) -> bool:
    """Whether an engine counts as down."""
    return stage.app.desk.backend(role).health.up is False


async def seen_down(stage: Stage, role: Role = Role.SPECULATIVE) -> None:
    """Wait until it does."""
    await until(lambda: down(stage, role), DOWN_WITHIN_S, what="its being down")


async def stuck_on(stage: Stage, frozen: Freezing, count: int = 1, *lines: str) -> list[Went]:
    """So many more requests that wait there, in this order."""
    before = len(frozen.asked())
    waits = []
    for number in range(1, count + 1):
        waits.append(asyncio.create_task(went(stage, *lines)))
        await until(lambda enough=before + number: len(frozen.asked()) == enough, what="its being stuck")
    return waits


@asynccontextmanager
async def engine(role: Role) -> AsyncIterator[tuple[int, str]]:
    """An embedded engine in a process of its own: its pid and url."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "proxy", "engine", "--role", role, "--port", "0", "--time-scale", "0.1"),
        *("--die-with-parent",),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        line = (await process.stdout.readline()).decode()
        yield process.pid, f"http://127.0.0.1:{int(line.split()[1])}"
    finally:
        process.kill()
        await process.wait()

"""A running proxy whose configuration is in a file that changes, and clients whose streams are under way."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from fakes.engine import Exchange, FakeEngine, either, stream
from fakes.raw import RawClient, Said, ask, chat, request
from fakes.until import until

from proxy import config, logs
from proxy.app import App
from proxy.config import Settings
from proxy.model import Role

SPECULATIVE, BASELINE = Role.SPECULATIVE.value, Role.BASELINE.value
STREAMS = 100


class Engine(FakeEngine):
    """A fake engine that streams one word and goes on when its gate opens, and counts the questions it is asked."""

    def __init__(self, role: str = SPECULATIVE, limit: int = 256) -> None:
        super().__init__(role=role, script=self._answer, max_running_requests=limit)
        self.gate = asyncio.Event()
        self.questions = 0

    async def _answer(self, exchange: Exchange) -> None:
        if b'"stream":true' in exchange.request.body:
            await stream(exchange, gate=self.gate)
        else:
            await either(exchange)

    async def _serve(self, exchange: Exchange) -> None:
        self.questions += exchange.request.target.startswith(("/ready", "/v1/loads", "/server_info"))
        await super()._serve(exchange)

    @property
    def connections(self) -> int:
        return len(self._connections)


@dataclass
class Stage:
    """A running proxy whose configuration is in a file, in front of engines."""

    app: App
    path: Path
    values: dict[str, Any]
    admin: aiohttp.ClientSession

    def write(self, text: str) -> None:
        self.path.write_text(text)

    def change(self, **sections: Any) -> None:
        """Write the first configuration with some keys changed."""
        values = {name: {**self.values.get(name, {}), **sections.get(name, {})} for name in {*self.values, *sections}}
        self.write(yaml.safe_dump(values))

    async def reload(self) -> tuple[int, dict[str, Any]]:
        async with self.admin.post("/reload") as answer:
            return answer.status, await answer.json()

    async def metric(self, name: str) -> float:
        text = await (await self.admin.get("/metrics")).text()
        return next(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))

    async def ask(self, *lines: str) -> Said:
        return await ask(self.app.port, request("/v1/chat/completions", chat(), *lines))

    def in_flight(self, role: Role) -> int:
        return self.app.desk.snapshot().of(role).in_flight


def values_of(a: FakeEngine, b: FakeEngine) -> dict[str, Any]:
    return {
        "listen": {"host": "127.0.0.1", "port": 0},
        "admin": {"port": 0},
        "backends": {SPECULATIVE: {"url": a.url}, BASELINE: {"url": b.url}},
        "routing": {"policy": "overflow", "leave_at": 60, "enter_at": 1},
        "health": {"interval_s": 0.1},
        "timeouts": {"linger_s": 0.0},
        "log": {"level": "error"},
    }


@contextlib.asynccontextmanager
async def staged(
    path: Path, a: FakeEngine, b: FakeEngine, source: Callable[[], Settings] | None = None
) -> AsyncIterator[Stage]:
    values = values_of(a, b)
    settings = config.from_mapping(values)
    app = App(settings, logs.configure("json", "error"), source or (lambda: config.load(path, {})))
    await app.start()
    async with aiohttp.ClientSession(f"http://127.0.0.1:{app.admin_port}") as admin:
        stage = Stage(app, path, values, admin)
        stage.change()
        try:
            yield stage
        finally:
            await app.stop()
    assert sum(book.in_flight for book in app.desk.ledger.books) == 0


class Crowd:
    """Clients whose streams are under way."""

    def __init__(self, stage: Stage, stack: contextlib.AsyncExitStack) -> None:
        self.stage, self.stack = stage, stack
        self.clients: list[RawClient] = []
        self.went: list[str | None] = []

    async def join(self, count: int, *lines: str) -> None:
        await asyncio.gather(*(self._join(*lines) for _ in range(count)))

    async def _join(self, *lines: str) -> None:
        client = await self.stack.enter_async_context(RawClient(self.stage.app.port))
        await client.send(request("/v1/chat/completions", chat(stream=True), *lines))
        self.went.append((await client.head()).header("x-crossover-backend"))
        await client.chunk()
        self.clients.append(client)

    async def all_end_well(self) -> None:
        for client in self.clients:
            body = b""
            while piece := await client.chunk():
                body += piece
            assert piece == b""
            assert body.endswith(b"data: [DONE]\n\n")


@contextlib.asynccontextmanager
async def crowded(tmp_path: Path, count: int = STREAMS) -> AsyncIterator[tuple[Stage, Crowd, Engine, Engine]]:
    async with (
        Engine() as a,
        Engine(BASELINE) as b,
        contextlib.AsyncExitStack() as stack,
        staged(tmp_path / "crossover.yaml", a, b) as stage,
    ):
        crowd = Crowd(stage, stack)
        await crowd.join(count)
        yield stage, crowd, a, b
        a.gate.set()
        b.gate.set()
        await crowd.all_end_well()
        await until(lambda: stage.app.desk.snapshot().in_flight == 0)

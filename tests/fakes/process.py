"""The proxy as a process of its own: started on a configuration file, told what to do by signals, its log kept."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import yaml
from fakes.engine import Exchange, FakeEngine, either, plain, stream
from fakes.raw import RawClient, Said, ask, chat, request
from fakes.until import until, until_told

ROOT = Path(__file__).parents[2]


@dataclass
class Process:
    """`crossover serve CONFIG`, with what it has logged so far."""

    process: asyncio.subprocess.Process
    config: Path
    lines: list[dict[str, Any]] = field(default_factory=list)
    other: list[str] = field(default_factory=list)
    listening: "asyncio.Future[None]" = field(init=False)

    async def listen(self) -> None:
        """Keep its log until it ends."""
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            try:
                self.lines.append(orjson.loads(line))
            except ValueError:
                self.other.append(line.decode())

    def logged(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["event"] == event]

    async def started(self) -> None:
        await until(lambda: self.logged("started") or self.process.returncode is not None, 60.0, what="the start")
        assert self.logged("started"), self.other

    @property
    def port(self) -> int:
        return int(self.logged("started")[0]["port"])

    @property
    def admin(self) -> str:
        return f"http://{self.logged('started')[0]['admin']}"

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def ended(self, within_s: float = 20.0) -> int:
        """Its exit code, once its log is read to the end. No limit that a test sets aside is as short as `within_s`."""
        async with asyncio.timeout(within_s):
            code = await self.process.wait()
            await asyncio.shield(self.listening)
            return code

    def write(self, values: dict[str, Any]) -> None:
        """Replace the configuration file at once."""
        beside = self.config.with_suffix(".new")
        beside.write_text(yaml.safe_dump(values))
        beside.replace(self.config)


@contextlib.asynccontextmanager
async def launched(
    config: Path, values: dict[str, Any], *, files: int | None = None, **environment: str
) -> AsyncIterator[Process]:
    """`files` is the hard limit of open files, of which none is the test's own."""
    process = Process(None, config)  # type: ignore[arg-type]
    process.write(values)
    process.process = await asyncio.create_subprocess_exec(
        *(() if files is None else ("sh", "-c", 'ulimit -n "$0" && exec "$@"', str(files))),
        *(sys.executable, "-m", "proxy", "serve", str(config)),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "PYTHONWARNINGS": "error", **environment},
    )
    process.listening = asyncio.ensure_future(process.listen())
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.process.kill()
        await process.process.wait()
        await process.listening


class Gate:
    """Streams one word and goes on when the gate opens, when also plain answers come; requests whose id begins with
    `quick` are answered at once."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()

    async def __call__(self, exchange: Exchange) -> None:
        quick = (exchange.request.header("x-request-id") or "").startswith("quick")
        if quick or exchange.request.method == "GET":
            await either(exchange)
        elif b'"stream":true' in exchange.request.body:
            await stream(exchange, gate=self.opened)
        else:
            await self.opened.wait()
            await plain(exchange)


@dataclass
class Stage:
    """A running process between two engines, and clients whose streams are under way."""

    a: FakeEngine
    b: FakeEngine
    gate: Gate
    process: Process
    values: dict[str, Any]
    stack: contextlib.AsyncExitStack

    async def client(self) -> RawClient:
        return await self.stack.enter_async_context(RawClient(self.process.port))

    async def streaming(self, count: int) -> list[RawClient]:
        clients = [await self.client() for _ in range(count)]
        for client in clients:
            await client.send(request(body=chat(stream=True)))
            assert (await client.head()).status == 200
            await client.chunk()
        return clients

    async def waiting(self, count: int) -> list[RawClient]:
        clients = [await self.client() for _ in range(count)]
        for client in clients:
            await client.send(request(body=chat(stream=True)))
        async with aiohttp.ClientSession(self.process.admin) as admin:

            async def all_wait() -> bool:
                return bool((await (await admin.get("/status")).json())["waiting"] == count)

            await until_told(all_wait)
        return clients

    async def quick(self, *lines: str) -> Said:
        return await ask(self.process.port, request("/v1/chat/completions", chat(), "x-request-id: quick", *lines))

    async def refuses(self) -> None:
        """Wait until a new request is told to go elsewhere."""

        async def refused() -> bool:
            return (await ask(self.process.port, request("/v1/models", method="GET"))).status == 503

        await until_told(refused, 30.0)


def settings(a: FakeEngine, b: FakeEngine, **timeouts: float) -> dict[str, Any]:
    return {
        "listen": {"host": "127.0.0.1", "port": 0},
        "admin": {"port": 0},
        "backends": {"speculative": {"url": a.url}, "baseline": {"url": b.url}},
        "timeouts": {"settle_s": 0.0, "drain_s": 60.0, "linger_s": 0.0, **timeouts},
    }


@contextlib.asynccontextmanager
async def staged(folder: Path, *, limit: int = 64, **timeouts: float) -> AsyncIterator[Stage]:
    gate = Gate()
    async with (
        FakeEngine(script=gate, max_running_requests=limit) as a,
        FakeEngine(role="baseline", script=gate, max_running_requests=limit) as b,
        contextlib.AsyncExitStack() as stack,
        launched(folder / "crossover.yaml", values := settings(a, b, **timeouts)) as process,
    ):
        await process.started()
        yield Stage(a, b, gate, process, values, stack)


async def rest(client: RawClient) -> tuple[bytes, bool]:
    """What is left of a stream whose head was read, and whether it ended properly."""
    body = b""
    while piece := await client.chunk():
        body += piece
    return body, piece == b""


async def readiness(process: Process) -> Said:
    return await ask(process.port, request("/ready", method="GET"))

"""Requests in every dialect that are under way until a test lets them end, and the clients that wait for them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from fakes.dialects import SAMPLES, Sample
from fakes.engine import Exchange, plain
from fakes.raw import RawClient, Said, request
from fakes.stage import Stage, staged
from fakes.until import until

_BY_TARGET = {sample.target: sample for sample in SAMPLES}


class Held:
    """An engine's script: a stream says its first event, a plain answer nothing; they go on when the gate opens.

    Questions (GET) are answered at once. `ids` are those of the requests that came, in their order. A new event in
    `opened` holds those that come from then on.
    """

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.ids: list[str] = []

    async def __call__(self, exchange: Exchange) -> None:
        if exchange.request.method == "GET":
            return await plain(exchange)
        self.ids.append(exchange.request.header("x-request-id") or "")
        gate = self.opened
        sample = _BY_TARGET.get(exchange.request.target.partition("?")[0])
        if sample is None or b'"stream":true' not in exchange.request.body:
            await gate.wait()
            return await plain(exchange)
        await exchange.stream_head(sample.content_type)
        await exchange.chunk(sample.events[0])
        await gate.wait()
        for piece in (*sample.events[1:], sample.end):
            await exchange.chunk(piece)
        return await exchange.end()


def body_of(sample: Sample, *, stream: bool) -> bytes:
    """A request's body in this dialect."""
    return sample.body if stream else sample.body.replace(b'"stream":true', b'"stream":false')


def every_kind(number: int) -> tuple[Sample, bool]:
    """The dialects in turn, streaming and not."""
    return SAMPLES[number // 2 % len(SAMPLES)], number % 2 == 0


@dataclass
class Crowd:
    """Clients that have asked and not read their answers yet."""

    stage: Stage
    stack: contextlib.AsyncExitStack
    host: str = "127.0.0.1"
    clients: list[RawClient] = field(default_factory=list)

    async def connect(self) -> RawClient:
        client = await self.stack.enter_async_context(RawClient(self.stage.app.port, self.host))
        self.clients.append(client)
        return client

    async def ask(
        self, target: str, body: bytes, *lines: str, name: str | None = None, version: str = "1.1"
    ) -> RawClient:
        """One more request; it has its place, waits or is refused when this returns."""
        client = await self.connect()
        known = self.known
        named = [f"x-request-id: {name}"] if name is not None else []
        await client.send(request(target, body, *named, *lines, version=version))
        await until(lambda: self.known > known, what=f"a word on {name or target}")
        return client

    async def of_every_kind(self, count: int, version: str = "1.1") -> list[RawClient]:
        """So many requests, in all dialects, streaming and not; named id0, id1 and so on, all in their order."""
        asked = []
        for number in range(count):
            sample, stream = every_kind(number)
            body = body_of(sample, stream=stream)
            asked.append(await self.ask(sample.target, body, name=f"id{number}", version=version))
        return asked

    @property
    def known(self) -> int:
        """Requests that were decided on: a decision, a place in the queue, or an end."""
        stage = self.stage
        ended_waiting = sum(1 for facts in stage.ended if not facts.attempts)
        return stage.app.admission.waiting + len(stage.app.desk.ring) + ended_waiting


@contextlib.asynccontextmanager
async def crowded(
    *, places: int = 256, host: str = "127.0.0.1", **sections: Mapping[str, Any] | str
) -> AsyncIterator[tuple[Stage, Crowd, Held]]:
    """Two engines of `places` each behind one gate, which opens at the end at the latest."""
    held = Held()
    listen = {"host": host, "port": 0}
    async with (
        staged(a=held, b=held, host=host, max_in_flight=places, listen=listen, **sections) as stage,
        contextlib.AsyncExitStack() as stack,
    ):
        yield stage, Crowd(stage, stack, host), held
        held.opened.set()


async def answers(clients: list[RawClient]) -> list[Said]:
    """All their answers."""
    return list(await asyncio.gather(*(client.answer() for client in clients)))

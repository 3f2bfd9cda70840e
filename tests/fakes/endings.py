"""A storm: requests of every ending there is in random order, many at a time, in every dialect, on books of its own.

What must hold afterwards is asserted by the tests. An id is `kind.number`, and by it engines and clients know what to
do. Its own books hold numbers, not requests, so that what they hold is no part of a measured growth.
"""

import asyncio
import contextlib
import random
import socket
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from fakes.dialects import SAMPLES, Sample
from fakes.engine import Exchange, FakeEngine, plain
from fakes.raw import RawClient, Said, request
from fakes.until import until

from proxy.app import App
from proxy.dispatch import Assignment
from proxy.model import Outcome, RequestFacts

AT_ONCE = 100
# On a busy machine a storm is slow, and that is no fault.
PATIENCE_S = 60.0
OLD_HTTP_SHARE = 0.1

# ---------------------------------------------------------------- the engines' ends


def sample_of(exchange: Exchange) -> Sample:
    """The dialect of a request's path."""
    return next(sample for sample in SAMPLES if sample.target == exchange.request.target)


async def answer(exchange: Exchange) -> None:
    if b'"stream":true' not in exchange.request.body:
        return await plain(exchange)
    sample = sample_of(exchange)
    await exchange.stream_head(sample.content_type)
    for piece in (*sample.events, sample.end):
        await exchange.chunk(piece)
    return await exchange.end()


async def reject(exchange: Exchange) -> None:
    await exchange.answer(b'{"object":"error","message":"no","code":400}', "400 Bad Request")


async def fail(exchange: Exchange) -> None:
    await exchange.answer(b"Internal Server Error", "500 Internal Server Error")


async def reset(exchange: Exchange) -> None:
    exchange.reset()
    raise ConnectionResetError


async def garbage(exchange: Exchange) -> None:
    await exchange.send(b"\x00\x01 this is no HTTP \xff\r\n\r\n")
    await reset(exchange)


async def huge_head(exchange: Exchange) -> None:
    await exchange.head("200 OK", f"x-huge: {'h' * 70_000}", "content-length: 0")


async def silence(exchange: Exchange) -> None:
    await exchange.gone()
    raise ConnectionResetError


async def one_event(exchange: Exchange) -> None:
    sample = sample_of(exchange)
    await exchange.stream_head(sample.content_type)
    await exchange.chunk(sample.events[0])


async def reset_in_stream(exchange: Exchange) -> None:
    await one_event(exchange)
    await reset(exchange)


async def silence_in_stream(exchange: Exchange) -> None:
    await one_event(exchange)
    await silence(exchange)


SCRIPTS = {
    "success": answer,
    "leave_uploading": answer,
    "leave_queued": answer,
    "leave_before_head": silence,
    "leave_in_stream": silence_in_stream,
    "reject": reject,
    "fail": fail,
    "refuse": answer,
    "reset": reset,
    "reset_in_stream": reset_in_stream,
    "garbage": garbage,
    "huge_head": huge_head,
}
KINDS = tuple(SCRIPTS)
STREAM_ONLY = ("leave_in_stream", "reset_in_stream")


async def by_id(exchange: Exchange) -> None:
    """Do what the request's id asks for."""
    await SCRIPTS[(exchange.request.header("x-request-id") or "").partition(".")[0]](exchange)


@dataclass
class Flaky(FakeEngine):
    """An engine whose port closes and opens again at once, while its busy connections live on.

    It accepts by itself: asyncio's server loses a connection that is accepted in the very turn of its closing.
    """

    arrived: set[str] = field(default_factory=set)
    refusing: set[str] = field(default_factory=set)

    async def listen(self) -> None:
        """Start on a port that a bound and deaf socket keeps for us while nobody listens: no other process takes it."""
        self._connections = set()
        self._idle: set[asyncio.StreamWriter] = set()
        self._keeper = self._bound()
        self.port = self._keeper.getsockname()[1]
        self._open_port()

    async def close(self) -> None:
        """Stop listening and drop every connection."""
        self._close_port()
        self._keeper.close()
        connections = list(self._connections)
        for task in connections:
            task.cancel()
        if connections:
            await asyncio.wait(connections)

    def refuse(self, name: str) -> None:
        """Take no connection, new or kept, until the request called `name` has been refused."""
        if not self.refusing:
            self._close_port()
            for writer in self._idle:
                writer.close()
        self.refusing.add(name)

    def refused(self, name: str) -> None:
        if name in self.refusing:
            self.refusing.remove(name)
            if not self.refusing:
                self._open_port()

    def _bound(self) -> socket.socket:
        bound = socket.socket(socket.AF_INET6 if ":" in self.host else socket.AF_INET)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.setblocking(False)
        bound.bind((self.host, self.port))
        return bound

    def _open_port(self) -> None:
        self._listening = self._bound()
        self._listening.listen(4096)
        asyncio.get_running_loop().add_reader(self._listening, self._accept)

    def _close_port(self) -> None:
        asyncio.get_running_loop().remove_reader(self._listening)
        self._accept()
        self._listening.close()

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                accepted, _ = self._listening.accept()
                task = asyncio.ensure_future(self._greet(accepted))
                self._connections.add(task)
                task.add_done_callback(self._connections.discard)

    async def _greet(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=accepted)
        self._idle.add(writer)
        try:
            await self._connected(reader, writer)
        finally:
            self._idle.discard(writer)

    async def _serve(self, exchange: Exchange) -> None:
        self.requests.clear()  # so that its own records do not grow
        self._idle.discard(exchange.writer)
        name = exchange.request.header("x-request-id") or ""
        self.arrived.add(name)
        try:
            await super()._serve(exchange)
        finally:
            self.arrived.discard(name)
            self._idle.add(exchange.writer)
        if self.refusing:
            exchange.writer.close()


# ---------------------------------------------------------------- the storm


@dataclass
class Tally:
    """What became of the requests of one kind."""

    outcomes: Counter[Outcome] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    queued: int = 0  # left or failed without an attempt, after waiting
    refused: int = 0  # a backend took no connection, on purpose or since its port was closed for another
    moved: int = 0  # served by the other backend
    whole: int = 0  # of those by HTTP/1.1 and status 200


@dataclass
class Storm:
    """The proxy under test, and what became of every request."""

    app: App
    engines: tuple[Flaky, Flaky]
    chance: random.Random
    host: str = "127.0.0.1"
    begun: set[str] = field(default_factory=set)
    running: set[str] = field(default_factory=set)
    turned_away: set[str] = field(default_factory=set)
    in_queue: dict[str, asyncio.Event] = field(default_factory=dict)
    ended_twice: list[str] = field(default_factory=list)
    tallies: dict[str, Tally] = field(default_factory=lambda: {kind: Tally() for kind in KINDS})

    def __post_init__(self) -> None:
        carry, on_end, assign = self.app.relay.carry, self.app.relay.on_end, self.app.desk.assign

        async def noted(incoming: Any, route: Any, request_id: str, *more: Any) -> Any:
            assert request_id not in self.begun, f"{request_id} came twice"
            self.begun.add(request_id)
            self.running.add(request_id)
            return await carry(incoming, route, request_id, *more)

        def end(facts: RequestFacts) -> None:
            if facts.request_id not in self.running:
                self.ended_twice.append(facts.request_id)
            self.running.discard(facts.request_id)
            if (queued_or_ended := self.in_queue.get(facts.request_id)) is not None:
                queued_or_ended.set()
            self.note(facts)
            on_end(facts)

        def chosen(traits: Any, request_id: str, *rest: Any, **how: Any) -> Any:
            place = assign(traits, request_id, *rest, **how)
            self.open_port_for(request_id)
            first = request_id.startswith("refuse.") and request_id not in self.turned_away
            if first and isinstance(place, Assignment):
                self.turned_away.add(request_id)
                self.engine(place.backend.role).refuse(request_id)
            return place

        async def queued(waiter: Any) -> Any:
            if (seen := self.in_queue.get(waiter.request_id)) is not None:
                seen.set()
            return await wait(waiter)

        wait = self.app.admission._wait
        self.app.admission._wait = queued  # type: ignore[method-assign]
        self.app.relay.carry = noted  # type: ignore[method-assign]
        self.app.desk.assign = chosen  # type: ignore[method-assign]
        self.app.relay.on_end = end

    def note(self, facts: RequestFacts) -> None:
        self.open_port_for(facts.request_id)
        self.turned_away.discard(facts.request_id)
        tally = self.tallies[facts.request_id.partition(".")[0]]
        tally.outcomes[facts.outcome] += 1
        tally.queued += not facts.attempts and facts.queue_s > 0
        tally.refused += facts.attempts > 1 or facts.failure == "backend_unreachable"
        tally.moved += facts.attempts > 1 and facts.outcome is Outcome.FINISHED

    async def send(self, name: str) -> None:
        kind, _, number = name.partition(".")
        sample = SAMPLES[int(number) % len(SAMPLES)]
        streams = kind in STREAM_ONLY or self.chance.random() < 0.5
        body = sample.body if streams else sample.body.replace(b'"stream":true', b'"stream":false')
        version = "1.0" if self.chance.random() < OLD_HTTP_SHARE else "1.1"
        async with RawClient(self.app.port, self.host) as client:
            whole = request(sample.target, body, f"x-request-id: {name}", version=version)
            if kind == "leave_uploading":
                await client.send(whole[: -self.chance.randint(1, len(body))])
                await self.until(lambda: name in self.begun, name)
            else:
                if kind == "leave_queued":  # told, not looked for: its place may be free within milliseconds
                    self.in_queue[name] = asyncio.Event()
                await client.send(whole)
                await self.act(client, name, kind)
            if kind.startswith("leave") and self.chance.random() < 0.5:
                client.leave(reset=True)
        # So that nobody is counted among the hundred who is still on the way.
        await self.until(lambda: name in self.begun and name not in self.running, name)
        self.begun.discard(name)

    async def act(self, client: RawClient, name: str, kind: str) -> None:
        if kind == "leave_queued":
            async with asyncio.timeout(PATIENCE_S):
                await self.in_queue[name].wait()
            del self.in_queue[name]
        elif kind == "leave_before_head":
            await self.until(lambda: self.arrived(name) or self.has_ended(name), name)
        elif kind == "leave_in_stream":
            if (await client.head()).status == 200 and self.chance.random() < 0.8:
                await client.reader.read(64)
        else:
            self.hear(kind, await client.answer())

    def hear(self, kind: str, said: Said) -> None:
        tally = self.tallies[kind]
        tally.statuses[said.status] += 1
        framed = said.header("content-length") or said.header("transfer-encoding")
        tally.whole += said.status == 200 and (said.whole or not framed)

    def arrived(self, name: str) -> bool:
        return any(name in engine.arrived for engine in self.engines)

    def has_ended(self, name: str) -> bool:
        return name in self.begun and name not in self.running

    async def until(self, holds: Any, what: str) -> None:
        await until(holds, PATIENCE_S, what=what)

    def engine(self, role: str) -> Flaky:
        return next(engine for engine in self.engines if engine.role == role)

    def open_port_for(self, name: str) -> None:
        for engine in self.engines:
            engine.refused(name)

    async def rage(self, numbers: range) -> None:
        """Every kind once for each number, in random order."""
        names = [f"{kind}.{number}" for number in numbers for kind in KINDS]
        self.chance.shuffle(names)
        left = iter(names)

        async def one_after_the_other() -> None:
            for name in left:
                await self.send(name)

        await asyncio.gather(*(one_after_the_other() for _ in range(AT_ONCE)))

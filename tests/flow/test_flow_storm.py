"""Two thousand requests that end in every way there is; afterwards nothing is in flight and nothing is left."""

import asyncio
import gc
import os
import random
import socket
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from fakes.engine import Exchange, FakeEngine, content, either, plain, stream
from fakes.proxy import running, settings
from fakes.raw import RawClient, chat, request
from fakes.until import turns, until
from prometheus_client.parser import text_string_to_metric_families

from proxy.app import App
from proxy.model import Outcome, RequestFacts, Role

REQUESTS = 2000
AT_ONCE = 100
LIMIT = 24  # sequences on each backend: with a hundred at once some fifty wait
LATER_S = 120.0
# Of the second half over the first, whose most memory at a time the allocator keeps.
MAX_GROWTH_BYTES = 10 << 20

# ---------------------------------------------------------------- the engines' ends


async def reject(exchange: Exchange) -> None:
    await exchange.answer(b'{"object":"error","message":"no","code":400}', "400 Bad Request")


async def fail(exchange: Exchange) -> None:
    await exchange.answer(b"Internal Server Error", "500 Internal Server Error")


async def reset(exchange: Exchange) -> None:
    exchange.reset()
    raise ConnectionResetError


async def reset_in_stream(exchange: Exchange) -> None:
    await exchange.stream_head()
    await exchange.event(content("one "))
    await reset(exchange)


async def garbage(exchange: Exchange) -> None:
    await exchange.send(b"\x00\x01 this is no HTTP \xff\r\n\r\n")
    await reset(exchange)


async def huge_head(exchange: Exchange) -> None:
    await exchange.head("200 OK", f"x-huge: {'h' * 70_000}", "content-length: 0")


async def silence(exchange: Exchange) -> None:
    await exchange.gone()
    raise ConnectionResetError


async def one_word(exchange: Exchange) -> None:
    await exchange.stream_head()
    await exchange.event(content("one "))
    await silence(exchange)


SCRIPTS = {
    "finish_stream": stream,
    "finish_plain": plain,
    "leave_uploading": plain,
    "leave_queued": plain,
    "leave_before_head": silence,
    "leave_in_stream": one_word,
    "reject": reject,
    "fail": fail,
    "refuse": either,
    "reset": reset,
    "reset_in_stream": reset_in_stream,
    "garbage": garbage,
    "huge_head": huge_head,
}

MEANT = {
    "finish_stream": Outcome.FINISHED,
    "finish_plain": Outcome.FINISHED,
    "leave_uploading": Outcome.CLIENT_GONE_WAITING,
    "leave_queued": Outcome.CLIENT_GONE_WAITING,
    "leave_before_head": Outcome.CLIENT_GONE_WAITING,
    "leave_in_stream": Outcome.CLIENT_GONE_IN_STREAM,
    "reject": Outcome.FINISHED,
    "fail": Outcome.FAILED_BEFORE_COMMIT,
    "refuse": Outcome.FINISHED,
    "reset": Outcome.FAILED_BEFORE_COMMIT,
    "reset_in_stream": Outcome.FAILED_AFTER_COMMIT,
    "garbage": Outcome.FAILED_BEFORE_COMMIT,
    "huge_head": Outcome.FAILED_BEFORE_COMMIT,
}


async def by_id(exchange: Exchange) -> None:
    """Do what the request's id asks for."""
    await SCRIPTS[(exchange.request.header("x-request-id") or "").partition(".")[0]](exchange)


@dataclass
class Flaky(FakeEngine):
    """An engine whose port may be closed and opened again while its connections live on."""

    arrived: set[str | None] = field(default_factory=set)

    async def listen(self) -> None:
        """Start on a port that a bound and deaf socket keeps for us while nobody listens: no other process takes it."""
        self._connections = set()
        self._keeper = socket.socket()
        self._keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._keeper.bind((self.host, 0))
        self.port = self._keeper.getsockname()[1]
        await self.reopen()

    async def close(self) -> None:
        await super().close()
        self._keeper.close()

    async def _serve(self, exchange: Exchange) -> None:
        self.requests.clear()  # so that its own records do not grow
        self.arrived.add(exchange.request.header("x-request-id"))
        await super()._serve(exchange)

    async def shut(self) -> None:
        # A connection that is accepted in the very turn of the closing would be lost by asyncio, open and unheard.
        for listening in self._server.sockets:
            asyncio.get_running_loop().remove_reader(listening.fileno())
        await turns()
        self._server.close()

    async def reopen(self) -> None:
        self._server = await asyncio.start_server(self._connected, self.host, self.port, backlog=4096, reuse_port=True)


# ---------------------------------------------------------------- the storm


@dataclass
class Storm:
    """The proxy under test, and what became of every request. An id is `kind.number`."""

    app: App
    engines: tuple[Flaky, Flaky]
    chance: random.Random
    begun: set[str] = field(default_factory=set)
    ended: dict[str, RequestFacts] = field(default_factory=dict)
    statuses: dict[str, int] = field(default_factory=dict)
    whole: set[str] = field(default_factory=set)
    over: bool = False

    def __post_init__(self) -> None:
        carry, on_end = self.app.relay.carry, self.app.relay.on_end

        async def noted(incoming: object, route: object, request_id: str) -> object:
            self.begun.add(request_id)
            return await carry(incoming, route, request_id)  # type: ignore[arg-type]

        def end(facts: RequestFacts) -> None:
            assert facts.request_id not in self.ended
            self.ended[facts.request_id] = facts
            on_end(facts)

        self.app.relay.carry = noted  # type: ignore[assignment, method-assign]
        self.app.relay.on_end = end

    async def send(self, name: str) -> None:
        kind = name.partition(".")[0]
        body = chat(stream=kind not in ("finish_plain", "leave_uploading", "reset") and self.chance.random() < 0.9)
        if kind in ("finish_stream", "leave_in_stream", "reset_in_stream"):
            body = chat(stream=True)
        async with RawClient(self.app.port) as client:
            whole = request("/v1/chat/completions", body, f"x-request-id: {name}")
            if kind == "leave_uploading":
                await client.send(whole[: -self.chance.randint(1, len(body))])
                await self.has_begun(name)
            else:
                await client.send(whole)
                await self.act(client, name, kind)

    async def act(self, client: RawClient, name: str, kind: str) -> None:
        if kind == "leave_queued":
            await self.has_begun(name)
        elif kind == "leave_before_head":
            # Where it is queued or refused, it leaves from there.
            await until(lambda: name in self.ended or self.arrived(name), 60.0, what=name)
        elif kind == "leave_in_stream":
            if (await client.head()).status == 200 and self.chance.random() < 0.8:
                await client.chunk()
        else:
            said = await client.answer()
            self.statuses[name] = said.status
            if said.whole:
                self.whole.add(name)
        if kind.startswith("leave") and self.chance.random() < 0.5:
            client.leave(reset=True)

    async def has_begun(self, name: str) -> None:
        await until(lambda: name in self.begun, 60.0, what=name)

    def arrived(self, name: str) -> bool:
        return any(name in engine.arrived for engine in self.engines)

    async def close_ports_now_and_then(self) -> None:
        while not self.over:
            await self.ends_of(self.chance.randrange(20, 120))
            engine = self.chance.choice(self.engines)
            await engine.shut()
            await self.ends_of(self.chance.randrange(1, 6))
            await engine.reopen()

    async def ends_of(self, more: int) -> None:
        """Wait until so many more requests have ended, or the storm is over."""
        enough = len(self.ended) + more
        await until(lambda: self.over or len(self.ended) >= enough, 60.0, what=f"{enough} requests at their end")

    async def rage(self, numbers: range) -> None:
        names = [f"{self.chance.choice(list(SCRIPTS))}.{number}" for number in numbers]
        places = asyncio.Semaphore(AT_ONCE)

        async def one(name: str) -> None:
            async with places:
                await self.send(name)

        self.over = False
        flicker = asyncio.ensure_future(self.close_ports_now_and_then())
        try:
            await asyncio.gather(*(one(name) for name in names))
        finally:
            self.over = True  # not cancelled: a port on its way to be opened would be lost
            await flicker


def later(app: App) -> None:
    """Two minutes later by the proxy's clock: circuits have cooled down and failures no longer weigh."""
    app.desk.clock = app.desk.ledger._clock = lambda: time.monotonic() + LATER_S


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def counted(app: App, name: str) -> Counter[str]:
    """A counter's values by outcome."""
    families = text_string_to_metric_families(app.metrics.exposition().decode())
    samples: Iterator[tuple[str, float]] = (
        (sample.labels["outcome"], sample.value)
        for family in families
        for sample in family.samples
        if sample.name == name
    )
    total: Counter[str] = Counter()
    for outcome, value in samples:
        total[outcome] += int(value)
    return total


async def where_idle_traffic_goes(app: App, number: int) -> str | None:
    async with RawClient(app.port) as client:
        await client.send(request("/v1/chat/completions", chat(), f"x-request-id: finish_plain.idle{number}"))
        return (await client.answer()).header("x-crossover-backend")


def nothing_is_left(storm: Storm) -> bool:
    app = storm.app
    return (
        not app.relay.trips
        and not app.admission.waiting
        and app.desk.snapshot().in_flight == 0
        and all(engine.open == 0 for engine in storm.engines)
    )


async def quiet(storm: Storm, descriptors: int, tasks: int) -> None:
    """Wait until nothing is left of the storm: kept connections to the engines are dropped after some seconds."""
    await until(lambda: nothing_is_left(storm), 30.0, what="every request's end")
    await until(lambda: open_descriptors() <= descriptors, 30.0, what=f"no more than {descriptors} descriptors")
    await until(lambda: len(asyncio.all_tasks()) <= tasks, 30.0, what=f"no more than {tasks} tasks")


def check_books(storm: Storm) -> None:
    for backend in storm.app.desk.backends:
        counts = backend.book.counts(storm.app.desk.clock())
        assert (counts.in_flight, counts.lingering, counts.requests) == (0, 0, 0)
        assert backend.book.opened == backend.book.settled > 100
    assert storm.begun == set(storm.ended)
    outcomes = Counter(facts.outcome.value for facts in storm.ended.values())
    assert counted(storm.app, "crossover_requests_total") == outcomes


def check_endings(storm: Storm) -> None:
    """The storm was one: every ending happened, and happened to those it was meant for."""
    by_kind: dict[str, Counter[Outcome]] = {kind: Counter() for kind in SCRIPTS}
    for name, facts in storm.ended.items():
        by_kind[name.partition(".")[0]][facts.outcome] += 1
    for kind, outcome in MEANT.items():
        assert by_kind[kind][outcome] > 0.7 * by_kind[kind].total(), (kind, by_kind[kind])
    assert any(f.outcome is Outcome.CLIENT_GONE_WAITING and not f.attempts and f.queue_s for f in storm.ended.values())
    assert any(f.attempts == 2 and f.outcome is Outcome.FINISHED for f in storm.ended.values())
    assert any(f.failure == "backend_unreachable" or f.attempts > 1 for f in storm.ended.values())
    served = [name for name in storm.statuses if name.startswith("finish") and storm.statuses[name] == 200]
    assert set(served) <= storm.whole
    assert not [name for name in storm.whole if name.startswith("reset_in_stream") and storm.statuses[name] == 200]


@pytest.mark.parametrize("policy", ["threshold", "overflow"])
async def test_after_a_storm_of_every_ending_nothing_is_in_flight_and_nothing_is_left(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case H7."""
    monkeypatch.setattr("proxy.wire.upstream.POOL_IDLE_S", 0.5)  # kept connections need not be waited for
    monkeypatch.setattr("fakes.raw.WITHIN_S", 30.0)  # on a busy machine a storm is slow, and that is no fault
    async with (
        Flaky(script=by_id, max_running_requests=LIMIT) as a,
        Flaky(role="baseline", script=by_id, max_running_requests=LIMIT) as b,
        running(settings(a.url, b.url, routing={"policy": policy}, circuit={"open_s": 0.2})) as app,
    ):
        storm = Storm(app, (a, b), random.Random(7))
        descriptors, tasks = open_descriptors(), len(asyncio.all_tasks())
        went_before = {await where_idle_traffic_goes(app, number) for number in range(5)}
        await storm.rage(range(REQUESTS // 2))
        await quiet(storm, descriptors, tasks)
        before_bytes = resident_bytes()
        await storm.rage(range(REQUESTS // 2, REQUESTS))
        await quiet(storm, descriptors, tasks)
        check_books(storm)
        check_endings(storm)
        assert resident_bytes() - before_bytes < MAX_GROWTH_BYTES
        later(app)
        goes_after = {await where_idle_traffic_goes(app, number) for number in range(5, 10)}
        assert goes_after == went_before == {Role.SPECULATIVE}

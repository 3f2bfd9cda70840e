"""H32 and H33: the proxy as a process of its own that is told to stop, or to reload, under full load."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
import yaml
from fakes.dialects import SAMPLES, Sample
from fakes.engine import Exchange, FakeEngine, plain, stream
from fakes.leaping import leaping
from fakes.process import Process, Stage, launched, readiness, rest, settings, staged
from fakes.raw import RawClient, ask, chat, request
from fakes.reloading import BASELINE, SPECULATIVE, Engine
from fakes.stage import staged as here
from fakes.until import until, until_told

from proxy import tasks
from proxy.config import Settings
from proxy.model import Dialect

STREAMS, PLAIN, WAITING = 50, 4, 10
STREAMING = request(body=chat(stream=True))


async def drained(stage: Stage, number: signal.Signals = signal.SIGTERM) -> None:
    stage.process.signal(number)
    await until(lambda: stage.process.logged("drain_began"), what="the drain")


@dataclass
class Load:
    """Fifty streams and four plain answers under way, and ten requests that wait for a place."""

    streams: list[RawClient]
    plain: list[RawClient]
    waiting: list[RawClient]


async def under_load(stage: Stage) -> Load:
    streams, plain = await stage.streaming(STREAMS), [await stage.client() for _ in range(PLAIN)]
    for client in plain:
        await client.send(request(body=chat()))
    await until(lambda: stage.a.open + stage.b.open == STREAMS + PLAIN, what="all under way")
    return Load(streams, plain, await stage.waiting(WAITING))


async def ended_well(clients: list[RawClient]) -> None:
    for client in clients:
        body, whole = await rest(client)
        assert whole
        assert body.endswith(b"data: [DONE]\n\n")


# ---------------------------------------------------------------- H32: a rollout


async def test_h32_rollout_under_load_loses_no_answer(tmp_path: Path) -> None:
    """Readiness at once, the grace, idle connections, what runs and what waits, and the exit code."""
    async with staged(tmp_path, limit=(STREAMS + PLAIN) // 2, settle_s=5.0) as stage:
        kept, used, idle = await stage.client(), await stage.client(), await stage.client()
        for client in (kept, used):
            await client.send(request("/v1/models", method="GET"))
            assert (await client.answer()).header("connection") is None
        load = await under_load(stage)

        await drained(stage)
        said = await readiness(stage.process)
        assert (said.status, said.json) == (503, {"status": "not_ready", "reason": "settling"})
        assert (await ask(stage.process.port, request("/health/live", method="GET"))).status == 200
        await kept.send(request("/v1/models", method="GET"))
        said = await kept.answer()
        assert (said.status, said.header("connection")) == (200, "close")
        late = [await stage.client() for _ in range(5)]
        for client in late:
            await client.send(STREAMING)

        await stage.refuses()
        assert (await used.rest(), await idle.rest()) == (b"", b"")
        assert stage.process.process.returncode is None

        stage.gate.opened.set()
        await ended_well(load.streams)
        for client in load.plain:
            said = await client.answer()
            assert (said.status, said.whole, b"hello" in said.body) == (200, True, True)
        for client in (*load.waiting, *late):
            said = await client.answer()
            assert (said.status, said.whole, said.header("connection")) == (200, True, "close")
        assert await stage.process.ended() == 0
        assert stage.process.logged("stopped")[0]["in_flight"] == 0
        settled = stage.process.logged("request_settled")
        assert [line["outcome"] for line in settled] == ["finished"] * (STREAMS + PLAIN + WAITING + 5)
        assert not stage.process.logged("task_failed")
        assert stage.process.other == []


async def test_h32_new_request_after_the_grace_is_refused_with_503(tmp_path: Path) -> None:
    """A load balancer that has not noticed yet gets an answer that its client may try again elsewhere."""
    async with staged(tmp_path, settle_s=0.0) as stage:
        running = await stage.streaming(1)
        await drained(stage)
        for target in ("/v1/chat/completions", "/v1/models"):
            post = target != "/v1/models"
            data = request(target, chat() if post else b"", method="POST" if post else "GET")
            said = await ask(stage.process.port, data)
            assert (said.status, said.header("connection"), said.header("retry-after")) == (503, "close", "1")
        stage.gate.opened.set()
        await ended_well(running)
        assert await stage.process.ended() == 0


@pytest.mark.parametrize("settle_s", [5.0, 30.0])
@leaping
async def test_h32_grace_is_as_long_as_it_is_configured(settle_s: float) -> None:
    """Just before its end a request is served, just after it one is turned away; a stream runs all the while."""
    gate = asyncio.Event()

    async def held(exchange: Exchange) -> None:
        if b'"stream":true' in exchange.request.body:
            await stream(exchange, gate=gate)
        else:
            await plain(exchange)

    sections = {"timeouts": {"settle_s": settle_s, "drain_s": 600.0}, "health": {"interval_s": 300}}
    async with here(held, held, **sections) as stage, RawClient(stage.app.port) as client:
        await client.send(STREAMING)
        assert (await client.head()).status == 200
        draining = tasks.spawn(stage.app.drain(settle=True), name="drain")
        await asyncio.sleep(settle_s * 0.95)
        assert (await stage.ask()).status == 200
        await asyncio.sleep(settle_s * 0.1)
        assert (await stage.ask()).status == 503
        gate.set()
        await ended_well([client])
        await draining


async def test_h32_request_behind_a_running_one_is_refused_with_503_or_left_unanswered(tmp_path: Path) -> None:
    """On the same connection, once the grace is over: it is not begun, and the connection ends."""
    async with staged(tmp_path, settle_s=0.0) as stage:
        [client] = await stage.streaming(1)
        await drained(stage)
        await stage.refuses()
        await client.send(request(body=chat()))
        stage.gate.opened.set()
        await ended_well([client])
        after = await client.rest()
        assert after == b"" or after.startswith(b"HTTP/1.1 503 ")
        assert await stage.process.ended() == 0
        assert len(stage.a.requests) + len(stage.b.requests) == 1


def test_h32_defaults_are_a_grace_of_five_seconds_and_a_drain_of_three_minutes() -> None:
    urls = {"speculative": {"url": "http://a:1"}, "baseline": {"url": "http://b:1"}}
    timeouts = Settings.model_validate({"backends": urls}).timeouts
    assert (timeouts.settle_s, timeouts.drain_s) == (5.0, 180.0)


# ---------------------------------------------------------------- H32: beyond the drain


def endless() -> Any:
    """Streams the beginning of a dialect and then nothing, in the middle of an event."""

    async def answer(exchange: Exchange) -> None:
        path = exchange.request.target
        sample = next((each for each in SAMPLES if each.target == path), None)
        if sample is None or b'"stream":true' not in exchange.request.body:
            return await exchange.gone()
        await exchange.stream_head(sample.content_type)
        await exchange.chunk(sample.events[0])
        await exchange.chunk(sample.events[1] + sample.events[2][:9])
        return await exchange.gone()

    return answer


def told(sample: Sample, event: bytes) -> str:
    """What the last event of a stream says, in the words of its dialect."""
    if sample.dialect is Dialect.OLLAMA:
        return str(orjson.loads(event)["error"])
    value = orjson.loads(event.partition(b"data: ")[2])
    if sample.dialect is Dialect.RESPONSES:
        assert value["code"] == "shutting_down"
        return str(value["message"])
    return str(value["error"]["message"])


@pytest.mark.parametrize("signals", [1, 2], ids=["limit", "second signal"])
async def test_h32_streams_of_every_dialect_that_are_cut_end_with_an_error_event(tmp_path: Path, signals: int) -> None:
    async with staged(tmp_path, drain_s=0.5 if signals == 1 else 60.0) as stage:
        stage.a.script = stage.b.script = endless()
        clients = []
        for number in range(STREAMS):
            sample = SAMPLES[number % len(SAMPLES)]
            client = await stage.client()
            await client.send(request(sample.target, sample.body))
            assert (await client.head()).status == 200
            clients.append((sample, client))
        plain = await stage.client()
        await plain.send(request(body=chat()))
        await until(lambda: stage.a.open + stage.b.open == STREAMS + 1, what="all under way")

        await drained(stage)
        if signals == 2:
            stage.process.signal(signal.SIGTERM)
        for sample, client in clients:
            body, whole = await rest(client)
            sent = b"".join(sample.events[:2])
            assert not whole
            assert body.startswith(sent)
            assert sample.end not in body
            assert "shut down" in told(sample, body[len(sent) :])
        said = await plain.answer()
        assert (said.status, said.header("connection"), said.header("retry-after")) == (503, "close", "1")
        assert await stage.process.ended() == 0
        outcomes = [line["outcome"] for line in stage.process.logged("request_settled")]
        assert outcomes == ["shut_down"] * (STREAMS + 1)
        await until(lambda: stage.a.open + stage.b.open == 0, what="the engines freed")


@pytest.mark.parametrize(
    ("first", "second", "settle_s"),
    [
        (signal.SIGTERM, signal.SIGTERM, 60.0),
        (signal.SIGTERM, signal.SIGINT, 0.0),
        (signal.SIGINT, signal.SIGTERM, 60.0),
    ],
    ids=["settling", "draining", "interrupted"],
)
async def test_h32_second_signal_ends_everything_now(
    tmp_path: Path, first: signal.Signals, second: signal.Signals, settle_s: float
) -> None:
    """Neither the grace nor the drain, a minute each, is waited for."""
    async with staged(tmp_path, limit=2, settle_s=settle_s, drain_s=60.0) as stage:
        running, waiting = await stage.streaming(4), await stage.waiting(3)
        await drained(stage, first)
        stage.process.signal(second)
        for client in running:
            body, whole = await rest(client)
            assert (b"shutting_down" in body, whole) == (True, False)
        for client in waiting:
            said = await client.answer()
            assert (said.status, said.header("connection")) == (503, "close")
        assert await stage.process.ended() == 0
        assert stage.process.logged("stopped")[0]["in_flight"] == 0


# ---------------------------------------------------------------- H33: reloads

CLIENTS = 100


@dataclass
class Loaded:
    """A running process with a hundred streams between two engines."""

    process: Process
    values: dict[str, Any]
    a: Engine
    b: Engine
    clients: list[RawClient]
    admin: aiohttp.ClientSession
    stack: contextlib.AsyncExitStack

    async def join(self, count: int) -> list[str | None]:
        went = []
        for _ in range(count):
            client = await self.stack.enter_async_context(RawClient(self.process.port))
            await client.send(STREAMING)
            went.append((await client.head()).header("x-crossover-backend"))
            await client.chunk()
            self.clients.append(client)
        return went

    def changed(self, **sections: Any) -> dict[str, Any]:
        return {**self.values, **{name: {**self.values.get(name, {}), **more} for name, more in sections.items()}}

    async def reload(self, text: str | dict[str, Any], expected: str = "config_reloaded") -> None:
        """Write the file and send SIGHUP until what is expected is said. (The file is watched too: a verdict on the one
        before may still come first.)"""
        self.process.config.write_text(text if isinstance(text, str) else yaml.safe_dump(text))
        await self.hang_up(expected)

    async def hang_up(self, expected: str) -> None:
        before = len(self.process.lines)
        self.process.signal(signal.SIGHUP)
        await until(lambda: expected in self.verdicts(before), what=expected)

    def verdicts(self, since: int = 0) -> list[str]:
        lines = self.process.lines[since:]
        return [line["event"] for line in lines if line["event"] in ("config_reloaded", "config_rejected")]

    async def metric(self, name: str) -> float:
        text = await (await self.admin.get("/metrics")).text()
        values = (float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name))
        return next(values, 0.0)

    async def in_flight(self) -> tuple[float, float]:
        return (
            await self.metric('crossover_in_flight{role="speculative"}'),
            await self.metric('crossover_in_flight{role="baseline"}'),
        )

    async def config(self) -> dict[str, Any]:
        values: dict[str, Any] = yaml.safe_load(await (await self.admin.get("/config")).text())
        return values


@contextlib.asynccontextmanager
async def loaded(folder: Path, count: int = CLIENTS) -> AsyncIterator[Loaded]:
    """All streams end well afterwards, each on the engine that it began on, and the process ends with 0."""
    async with (
        Engine() as a,
        Engine(BASELINE) as b,
        contextlib.AsyncExitStack() as stack,
        launched(folder / "crossover.yaml", values := routed(a, b)) as process,
    ):
        await process.started()
        admin = await stack.enter_async_context(aiohttp.ClientSession(process.admin))
        load = Loaded(process, values, a, b, [], admin, stack)
        await load.join(count)
        yield load
        a.gate.set()
        b.gate.set()
        await ended_well(load.clients)
        await admin.close()
        process.signal(signal.SIGTERM)
        assert await process.ended() == 0
        settled = process.logged("request_settled")
        assert [line["outcome"] for line in settled] == ["finished"] * len(load.clients)
        assert not process.logged("task_failed")


def routed(a: FakeEngine, b: FakeEngine) -> dict[str, Any]:
    return {
        **settings(a, b),
        "routing": {"policy": "overflow", "leave_at": 60, "enter_at": 1},
        "health": {"interval_s": 0.1},
    }


async def test_h33_threshold_then_address_change_under_a_hundred_streams(tmp_path: Path) -> None:
    async with Engine(BASELINE) as c, loaded(tmp_path) as load:
        assert await load.in_flight() == (60, 40)
        await load.reload(load.changed(routing={"leave_at": 62}))
        assert await load.in_flight() == (60, 40)
        assert await load.join(3) == [SPECULATIVE, SPECULATIVE, BASELINE]

        moved = load.changed(backends={BASELINE: {"url": c.url}})
        await load.reload(moved)
        # What runs stays where it began and is counted there; what is new goes to the new engine.
        assert await load.in_flight() == (62, 0)
        status = await (await load.admin.get("/status")).json()
        assert status["dropped_in_flight"] == {load.b.url: 41}
        assert await load.join(2) == [BASELINE, BASELINE]
        assert (load.a.open, load.b.open, c.open) == (62, 41, 2)
        # No health loop of the removed engine is left, while the others' go on.
        await until(lambda: c.questions > 4)
        asked = load.b.questions
        await until(lambda: c.questions > 12)
        assert load.b.questions == asked
        c.gate.set()


BAD: dict[str, str] = {
    "a typo in a key": "{good}routing: {{leave_att: 3}}\n",
    "an unknown section": "{good}rooting: {{leave_at: 3}}\n",
    "cut off in the middle": "{good}routing: {{leave_at: 3, ent",
    "cut off after a key": "{good}routing:\n  leave_at",
    "without its first engine": 'backends: {{baseline: {{url: "{b}"}}}}\n',
    "without engines": "listen: {{port: 0}}\n",
    "of another kind": "[1, 2, 3]\n",
    "empty": "",
}


async def test_h33_bad_file_keeps_the_running_configuration_and_shows_it(tmp_path: Path) -> None:
    async with loaded(tmp_path, 10) as load:
        before, flying = await load.config(), await load.in_flight()
        good = yaml.safe_dump({key: load.values[key] for key in ("listen", "admin", "backends")})
        for name, text in BAD.items():
            rejected = await load.metric(REJECTED)
            await load.reload(text.format(good=good, b=load.b.url), "config_rejected")
            await require_kept(load, before, flying, name)
            assert await load.metric(REJECTED) > rejected, name
        await recovers(load)


REJECTED = 'crossover_config_reloads_total{result="rejected"}'


async def require_kept(load: Loaded, before: dict[str, Any], flying: tuple[float, float], name: str) -> None:
    """All is as it was, and both the log and a metric say that the file is bad."""
    line = load.process.logged("config_rejected")[-1]
    assert (line["level"], bool(line["problems"])) == ("error", True), name
    assert await load.config() == before, name
    assert await load.metric("crossover_config_reload_failed") == 1, name
    assert await load.in_flight() == flying, name


async def recovers(load: Loaded) -> None:
    assert await load.join(1) == [SPECULATIVE]
    await load.reload(load.changed(routing={"leave_at": 61}))
    assert await load.metric("crossover_config_reload_failed") == 0
    assert (await load.config())["routing"]["leave_at"] == 61


@pytest.mark.parametrize("way", ["a folder", "gone"])
async def test_h33_unreadable_file_keeps_the_running_configuration_and_shows_it(tmp_path: Path, way: str) -> None:
    async with loaded(tmp_path, 10) as load:
        before, flying = await load.config(), await load.in_flight()
        load.process.config.unlink()
        if way == "a folder":
            load.process.config.mkdir()
        await load.hang_up("config_rejected")
        await require_kept(load, before, flying, way)
        if way == "a folder":
            load.process.config.rmdir()
        await recovers(load)


@pytest.mark.parametrize("bad", [{"timeouts": {"drain_s": "long"}}, {"listen": {"host": "127.0.0.2"}}], ids=str)
async def test_h33_good_change_beside_a_bad_one_is_not_taken_over_either(
    tmp_path: Path, bad: dict[str, dict[str, Any]]
) -> None:
    """Bad is also what is right and cannot change while the proxy runs."""
    async with Engine() as c, loaded(tmp_path, 5) as load:
        mixed = load.changed(routing={"leave_at": 3, "enter_at": 1}, backends={SPECULATIVE: {"url": c.url}}, **bad)
        before = await load.config()
        await load.reload(mixed, "config_rejected")
        assert await load.config() == before
        assert await load.in_flight() == (5, 0)
        assert (await load.join(1), c.questions) == ([SPECULATIVE], 0)


async def test_h33_fifty_reloads_in_a_second_end_with_the_last_file(tmp_path: Path) -> None:
    """Half by signal, half by the operators' port, while the file moves A between two addresses and the threshold."""
    async with Engine() as c, loaded(tmp_path) as load:
        async with asyncio.TaskGroup() as group:
            for number in range(50):
                url = (load.a if number % 2 else c).url
                load.process.write(
                    load.changed(routing={"leave_at": 100 + number}, backends={SPECULATIVE: {"url": url}})
                )
                if number % 2:
                    load.process.signal(signal.SIGHUP)
                else:
                    group.create_task(reloaded(load))
                await asyncio.sleep(0.02)  # sleeps: fifty of them make the second of the case
        last = load.changed(routing={"leave_at": 60}, backends={SPECULATIVE: {"url": load.a.url}})
        load.process.write(last)
        load.process.signal(signal.SIGHUP)

        async def taken_over() -> bool:
            return bool((await load.config())["routing"]["leave_at"] == 60)

        await until_told(taken_over)
        assert await load.in_flight() == (60, 40)
        assert await load.metric("crossover_config_reload_failed") == 0
        assert load.verdicts().count("config_rejected") == 0
        # One health loop for each engine in use, and none for the one that came and went.
        await until(lambda: load.a.questions > 4)
        asked, began = c.questions, load.a.questions
        await until(lambda: load.a.questions > began + 8)
        assert c.questions == asked
        assert await load.join(1) == [BASELINE]
        c.gate.set()


async def reloaded(load: Loaded) -> None:
    async with load.admin.post("/reload") as answer:
        assert answer.status == 200

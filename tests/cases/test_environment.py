"""H34: the wall clock, the family of an address and the environment's proxies change nothing."""

import asyncio
import contextlib
import datetime
import importlib.util
import os
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from fakes.dialects import SAMPLES, Sample
from fakes.engine import Exchange, FakeEngine, either, stream
from fakes.lookups import resolve_by
from fakes.process import ROOT, launched
from fakes.process import settings as file_settings
from fakes.proxy import running, settings
from fakes.raw import RawClient, ask, chat, request
from fakes.stage import Stage, staged
from fakes.until import until

from proxy.model import CircuitState, Outcome, Role

HOUR_S, DAY_S = 3600.0, 86400.0
ROLES = pytest.mark.parametrize("role", list(Role))


# ---------------------------------------------------------------- clocks


class WallClock:
    """The clock of the wall, set by hand; the monotonic one goes on as it does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.off_s = 0.0
        true = time.time
        clock = self

        class Shifted(datetime.datetime):
            @classmethod
            def now(cls, tz: Any = None) -> Any:
                return datetime.datetime.fromtimestamp(true() + clock.off_s, tz)

        monkeypatch.setattr(time, "time", lambda: true() + self.off_s)
        monkeypatch.setattr(time, "time_ns", lambda: int((true() + self.off_s) * 1e9))
        monkeypatch.setattr(datetime, "datetime", Shifted)


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> WallClock:
    return WallClock(monkeypatch)


def gated(gate: asyncio.Event) -> Callable[[Exchange], Any]:
    async def answer(exchange: Exchange) -> None:
        if exchange.request.method == "GET":
            await either(exchange)
        else:
            await stream(exchange, gate=gate)

    return answer


@contextlib.asynccontextmanager
async def with_open_circuit(gate: asyncio.Event, open_s: float) -> AsyncIterator[Stage]:
    """The speculative engine's circuit is open; the baseline's streams wait for the gate."""

    async def fail(exchange: Exchange) -> None:
        await exchange.answer(b"{}", "500 Oh")

    rules = {"max_failures": 3, "open_s": open_s}
    async with staged(fail, circuit=rules, timeouts={"stall_s": 60.0, "linger_s": 0.0}) as stage:
        for _ in range(3):
            await stage.ask()
        assert stage.circuit().state is CircuitState.OPEN
        stage.b.script = gated(gate)
        yield stage


STEPS = pytest.mark.parametrize("steps", [(-HOUR_S, DAY_S), (DAY_S, -HOUR_S)], ids=["back first", "forward first"])


@STEPS
async def test_h34_open_circuit_stays_open_and_streams_run_on_when_the_wall_clock_leaps(
    steps: tuple[float, float], wall: WallClock
) -> None:
    gate = asyncio.Event()
    async with with_open_circuit(gate, open_s=600.0) as stage, RawClient(stage.app.port) as client:
        await client.send(request(body=chat(stream=True)))
        assert (await client.head()).status == 200
        await client.chunk()
        for wall.off_s in steps:
            seen = len(stage.a.requests)
            async with RawClient(stage.app.port) as another:
                await another.send(request(body=chat(stream=True)))
                said = await another.head()
                assert (said.status, said.header("x-crossover-backend")) == (200, "baseline")
            assert stage.circuit().state is CircuitState.OPEN
            assert len(stage.a.requests) == seen
            assert (await ask(stage.app.port, request("/ready", method="GET"))).status == 200
        gate.set()
        while piece := await client.chunk():
            last = piece
        assert piece == b""
        assert last.endswith(b"data: [DONE]\n\n")
        assert all(each.up is not False for each in (back.health for back in stage.app.desk.backends))


@STEPS
async def test_h34_circuit_closes_after_its_own_time_though_the_wall_clock_has_leapt(
    steps: tuple[float, float], wall: WallClock
) -> None:
    gate = asyncio.Event()
    gate.set()
    async with with_open_circuit(gate, open_s=0.2) as stage:
        wall.off_s = steps[0]
        stage.a.script = gated(gate)
        wall.off_s = steps[1]

        async def heals() -> bool:
            return (await stage.ask(stream=True)).header("x-crossover-backend") == "speculative"

        async with asyncio.timeout(10):
            while not await heals():
                wall.off_s = -wall.off_s
        assert stage.circuit().state is CircuitState.CLOSED


@STEPS
async def test_h34_durations_and_ages_are_of_the_monotonic_clock(steps: tuple[float, float], wall: WallClock) -> None:
    gate = asyncio.Event()
    async with staged(gated(gate), gated(gate)) as stage, RawClient(stage.app.port) as client:
        began_s = time.monotonic()
        await client.send(request(body=chat(stream=True)))
        await client.head()
        await client.chunk()
        wall.off_s = steps[0]
        await asyncio.sleep(0)
        wall.off_s = steps[1]
        text = stage.app.metrics.exposition().decode()
        gate.set()
        while await client.chunk():
            pass
        facts = await stage.ended_one()
        most_s = time.monotonic() - began_s
        for name in ("duration_s", "queue_s", "overhead_s", "ttft_s", "tpot_s"):
            assert 0 <= getattr(facts, name) <= most_s, name
        # Since before the proxy began, at most: nobody has measured an hour or a day.
        ages = [float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(AGES)]
        assert ages
        assert all(0 <= age < HOUR_S / 2 for age in ages)
        assert facts.outcome is Outcome.FINISHED


AGES = (
    "crossover_regime_age_seconds ",
    "crossover_in_flight_oldest_seconds{",
    "crossover_engine_poll_age_seconds{",
    "crossover_circuit_state_age_seconds{",
)


@STEPS
async def test_h34_requests_that_wait_keep_their_turn_and_their_limit_when_the_wall_clock_leaps(
    steps: tuple[float, float], wall: WallClock
) -> None:
    gate = asyncio.Event()
    async with (
        staged(gated(gate), gated(gate), max_in_flight=1, queue={"max_wait_s": 60.0}) as stage,
        contextlib.AsyncExitStack() as stack,
    ):
        clients = [await stack.enter_async_context(RawClient(stage.app.port)) for _ in range(4)]
        for client in clients:
            await client.send(request(body=chat(stream=True)))
        await until(lambda: stage.app.admission.waiting == 2, what="two that wait")
        for wall.off_s in steps:
            assert (await ask(stage.app.port, request("/v1/models", method="GET"))).status == 200
            assert stage.app.admission.waiting == 2
        gate.set()
        for client in clients:
            assert (await client.answer()).status == 200


@pytest.fixture
def fresh_names(wall: WallClock, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module of names as it is when loaded under this wall clock: a clock that it took at its import is this one
    too."""
    spec = importlib.util.find_spec("proxy.wire.names")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


@STEPS
async def test_h34_last_address_of_an_engine_is_used_while_its_resolver_fails_though_the_wall_clock_leaps(
    steps: tuple[float, float], wall: WallClock, fresh_names: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over new connections, which look the name up: each request ends its own."""
    fails = False

    def found(host: str, port: int, *_: Any) -> Any:
        if fails:
            raise socket.gaierror(socket.EAI_AGAIN, "try again")
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", port))]

    resolve_by(monkeypatch, found)
    monkeypatch.setattr("proxy.wire.pair.Names", fresh_names.Names)

    async def closing(exchange: Exchange) -> None:
        await exchange.answer(b"{}", "200 OK", "connection: close")

    async with (
        FakeEngine(script=closing) as a,
        FakeEngine(role="baseline") as b,
        running(settings(f"http://engine.test:{a.port}", b.url, health={"interval_s": 300})) as app,
    ):
        asked = request(body=chat())
        assert (await ask(app.port, asked)).header("x-crossover-backend") == "speculative"
        fails = True
        for wall.off_s in steps:
            assert (await ask(app.port, asked)).header("x-crossover-backend") == "speculative"
        assert len(a.requests) == 3


# ---------------------------------------------------------------- address families


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.dialect.value)
async def test_h34_engine_at_an_ipv6_address_serves_every_dialect_and_is_seen_well(sample: Sample) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.stream_head(sample.content_type)
        for event in (*sample.events, sample.end):
            await exchange.chunk(event)
        await exchange.end()

    async with staged(answer, answer, host="::1") as stage:
        said = await ask(stage.app.port, request(sample.target, sample.body))
        assert (said.status, said.body) == (200, b"".join(sample.events) + sample.end)
        assert stage.a.requests[0].header("host") == f"[::1]:{stage.a.port}"
        assert all(each.health.up and each.facts and each.load for each in stage.app.desk.backends)


@ROLES
async def test_h34_engines_of_two_families_stand_in_for_each_other(role: Role) -> None:
    hosts = ("::1", "127.0.0.1") if role is Role.SPECULATIVE else ("127.0.0.1", "::1")
    async with (
        FakeEngine(host=hosts[0]) as a,
        FakeEngine(role="baseline", host=hosts[1]) as b,
        running(settings(a.url, b.url)) as app,
    ):
        assert (await ask(app.port, request(body=chat()))).header("x-crossover-backend") == "speculative"
        await a.close()
        assert (await ask(app.port, request(body=chat()))).header("x-crossover-backend") == "baseline"
        assert (await ask(app.port, request("/v1/models", method="GET"))).status == 200


@pytest.fixture
def two_families(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The name localhost has both addresses, IPv6 first, whatever this machine's own file says."""
    asked: list[str] = []
    true = socket.getaddrinfo

    def found(host: Any, port: Any, family: int = 0, *more: Any, **how: Any) -> Any:
        if host != "localhost":
            return true(host, port, family, *more, **how)
        asked.append(host)
        stream_of = (socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
        both = [
            (socket.AF_INET6, *stream_of, ("::1", port, 0, 0)),
            (socket.AF_INET, *stream_of, ("127.0.0.1", port)),
        ]
        return [each for each in both if family in (0, each[0])]

    resolve_by(monkeypatch, found)
    return asked


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_h34_engine_called_localhost_is_reached_on_the_one_family_that_it_listens_on(
    host: str, two_families: list[str]
) -> None:
    async with FakeEngine(host=host) as a, FakeEngine(role="baseline", host=host) as b:
        urls = [f"http://localhost:{engine.port}" for engine in (a, b)]
        async with running(settings(*urls)) as app:
            await until(lambda: all(each.health.up and each.facts for each in app.desk.backends), what="both seen well")
            for body in (chat(), chat(stream=True)):
                said = await ask(app.port, request(body=body))
                assert (said.status, said.header("x-crossover-backend")) == (200, "speculative")
            assert (await ask(app.port, request("/v1/models", method="GET"))).status == 200
            assert a.requests[0].header("host") == f"localhost:{a.port}"
    assert two_families


@pytest.mark.parametrize(
    ("listen", "comes"), [("::", "::1"), ("::", "127.0.0.1"), ("::1", "::1"), ("0.0.0.0", "127.0.0.1")]
)
async def test_h34_clients_of_either_family_are_served_where_the_address_says_so(listen: str, comes: str) -> None:
    async with staged(listen={"host": listen}) as stage, RawClient(stage.app.port, comes) as client:
        for body in (chat(), chat(stream=True)):
            await client.send(request(body=body))
            assert (await client.answer()).status == 200


# ---------------------------------------------------------------- the environment's proxies


def dead_proxies(port: int) -> dict[str, str]:
    """Every spelling of a proxy that is not there."""
    names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "WS_PROXY")
    where = f"http://127.0.0.1:{port}"
    return {name: where for upper in names for name in (upper, upper.lower())}


@contextlib.contextmanager
def taken_port() -> Any:
    """A port that refuses: bound, and not listened on."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@pytest.mark.parametrize("exempt", ["", "*", "127.0.0.1", "example.org"])
async def test_h34_proxies_of_the_environment_are_not_used_towards_engines(tmp_path: Path, exempt: str) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login someone password secret\n")
    netrc.chmod(0o600)
    with taken_port() as dead:
        around = {**dead_proxies(dead), "NO_PROXY": exempt, "no_proxy": exempt, "NETRC": str(netrc)}
        async with (
            FakeEngine() as a,
            FakeEngine(role="baseline") as b,
            launched(tmp_path / "crossover.yaml", file_settings(a, b), **around) as process,
        ):
            await process.started()
            await until(lambda: len(process.logged("engine_seen")) == 2, what="both engines seen")
            for body in (chat(), chat(stream=True)):
                assert (await ask(process.port, request(body=body))).status == 200
            assert (await ask(process.port, request("/v1/models", method="GET"))).status == 200
            assert (await ask(process.port, request("/ready", method="GET"))).status == 200
            assert not process.logged("health_changed")[2:]
            assert [each.header("authorization") for each in (*a.requests, *b.requests)] == [None] * 3


async def test_h34_proxies_of_the_environment_are_not_used_by_a_check_either(tmp_path: Path) -> None:
    config = tmp_path / "crossover.yaml"
    with taken_port() as dead:
        async with FakeEngine() as a, FakeEngine(role="baseline") as b:
            config.write_text(f'backends: {{speculative: {{url: "{a.url}"}}, baseline: {{url: "{b.url}"}}}}\n')
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "proxy", "check", str(config)),
                cwd=ROOT,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env={**os.environ, **dead_proxies(dead)},
            )
            out, _ = await process.communicate()
            assert process.returncode == 0, out.decode()
            assert b"unreachable" not in out.lower()

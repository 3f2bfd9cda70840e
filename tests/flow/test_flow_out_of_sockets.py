"""A proxy that is out of open files says so, and holds it against no engine."""

import asyncio
import contextlib
import errno
import os
import resource
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from fakes.engine import FakeEngine
from fakes.process import Gate, Process, launched
from fakes.raw import RawClient, ask, chat, request
from fakes.stage import staged
from fakes.until import until

from proxy.model import CircuitState, Role
from proxy.wire import control

QUICK_PROBES = {"interval_s": 0.1, "timeout_s": 5}
SLOW_PROBES = {"interval_s": 300}
DIALECTS = ["/v1/chat/completions", "/v1/messages", "/api/chat"]


async def no_socket(*_: object) -> Any:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


# ---------------------------------------------------------------- one failure, in this process


@pytest.mark.parametrize("target", DIALECTS)
async def test_client_is_told_in_its_dialect_and_no_second_attempt_is_made(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with staged(health=SLOW_PROBES) as stage:
        monkeypatch.setattr("proxy.wire.calls.first_to_connect", no_socket)
        said = await stage.ask(target=target)
        assert said.status == 503
        assert said.header("retry-after") == "1"
        assert b"LimitNOFILE" in said.body
        facts = await stage.ended_one()
        assert (facts.failure, facts.first_failure, facts.attempts) == ("out_of_sockets", None, 1)


async def test_no_circuit_opens_and_it_counts_as_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    async with staged(health=SLOW_PROBES) as stage:
        with monkeypatch.context() as without:
            without.setattr("proxy.wire.calls.first_to_connect", no_socket)
            for _ in range(20):
                assert (await stage.ask()).status == 503
        assert {stage.circuit(role).state for role in Role} == {CircuitState.CLOSED}
        assert stage.app.readiness().ready
        assert (await stage.ask()).status == 200
        totals = stage.app.metrics.totals()
        assert (totals.refused_by, totals.failed_by) == ({"out_of_sockets": 20}, {})


async def test_question_is_not_put_to_the_other_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = 0

    async def count(*_: object) -> Any:
        nonlocal tried
        tried += 1
        await no_socket()

    async with staged(health=SLOW_PROBES) as stage:
        monkeypatch.setattr("proxy.wire.calls.first_to_connect", count)
        said = await ask(stage.app.port, request("/v1/models", b"", method="GET"))
        assert (said.status, said.json["error"]["code"], tried) == (503, "out_of_sockets", 1)


async def test_probe_that_fails_so_takes_no_engine_down(monkeypatch: pytest.MonkeyPatch) -> None:
    real, out, tried = control._open_socket, False, 0

    def opened(address: Any) -> Any:
        nonlocal tried
        if out:
            tried += 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return real(address)

    monkeypatch.setattr(control, "MAX_AGE_S", 0.0)  # each question over a connection of its own
    monkeypatch.setattr(control, "_open_socket", opened)
    async with staged(health=QUICK_PROBES) as stage:
        out = True
        await until(lambda: tried > 20)
        health = {role: stage.app.desk.backend(role).health for role in Role}
        assert all(each.up and not each.misses for each in health.values()), health


# ---------------------------------------------------------------- a process with few files


@contextlib.asynccontextmanager
async def low(folder: Path, files: int | None, **sections: Any) -> AsyncIterator[tuple[Process, Gate]]:
    gate = Gate()
    async with FakeEngine(script=gate) as a, FakeEngine(role="baseline", script=gate) as b:
        values = {
            "backends": {"speculative": {"url": a.url}, "baseline": {"url": b.url}},
            "listen": {"host": "127.0.0.1", "port": 0},
            "admin": {"port": 0},
            "health": QUICK_PROBES,
            "timeouts": {"settle_s": 0},
            **sections,
        }
        async with launched(folder / "crossover.yaml", values, files=files) as process:
            await process.started()
            try:
                yield process, gate
            finally:
                gate.opened.set()


async def test_few_files_serve_what_they_are_enough_for_and_blame_no_engine(tmp_path: Path) -> None:
    async with (
        low(tmp_path, 256) as (process, _),
        contextlib.AsyncExitStack() as stack,
        aiohttp.ClientSession(process.admin) as admin,
    ):
        assert any("hard limit is 256" in line["message"] for line in process.logged("config_caution"))
        clients = [await stack.enter_async_context(RawClient(process.port)) for _ in range(220)]
        statuses = await asyncio.gather(*(begun(client) for client in clients))
        assert statuses.count(200) == 96
        assert set(statuses) <= {200, 503, None}
        async with admin.get("/status") as response:
            status = orjson.loads(await response.read())
        assert status["ready"], status
        assert not process.logged("circuit_changed")


def open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


async def begun(client: RawClient) -> int | None:
    """The status that a streamed request begins with; None where its connection is closed."""
    try:
        await client.send(request(body=chat(stream=True)))
        return (await client.head()).status
    except (OSError, EOFError, AssertionError, ValueError, IndexError):
        return None


async def test_operators_port_answers_beside_idle_connections_at_the_limit(tmp_path: Path) -> None:
    async with low(tmp_path, 256) as (process, _), contextlib.AsyncExitStack() as stack:
        for _ in range(400):
            await stack.enter_async_context(RawClient(process.port))
        async with aiohttp.ClientSession(process.admin) as admin, admin.get("/health") as response:
            assert response.status == 200


async def test_files_that_run_out_while_it_serves_blame_no_engine(tmp_path: Path) -> None:
    async with (
        low(tmp_path, None) as (process, _),
        contextlib.AsyncExitStack() as stack,
        aiohttp.ClientSession(process.admin) as admin,
    ):

        async def status() -> dict[str, Any]:
            async with admin.get("/status") as response:
                return dict(orjson.loads(await response.read()))

        await status()  # over a connection that stays
        clients = [await stack.enter_async_context(RawClient(process.port)) for _ in range(30)]
        for client in clients:
            await client.send(request("/healthz", b"", method="GET"))
            assert (await client.answer()).status == 200
        pid = process.process.pid
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (open_files(pid), before[1]))
        statuses = [await begun(client) for client in clients]
        assert set(statuses) <= {200, 503}
        assert statuses.count(503) > 10
        await until(lambda: len(process.logged("request_settled")) >= statuses.count(503), what="the lines")
        assert {line["failure"] for line in process.logged("request_settled")} == {"out_of_sockets"}
        told = await status()
        assert told["ready"], told
        assert not process.logged("circuit_changed")
        assert {line["after"] for line in process.logged("health_changed")} == {"up"}
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
        assert await begun(await stack.enter_async_context(RawClient(process.port))) == 200

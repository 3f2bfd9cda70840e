"""The proxy as a process of its own, told to stop or to reload by signals: no answer is lost."""

import asyncio
import signal
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
import yaml
from fakes.engine import Exchange, content
from fakes.process import Process, launched, rest, staged
from fakes.raw import chat, request
from fakes.until import until, until_told

# ---------------------------------------------------------------- stopping


async def test_new_requests_are_served_while_the_proxy_settles(tmp_path: Path) -> None:
    async with staged(tmp_path, settle_s=60.0) as stage:
        [running] = await stage.streaming(1)
        stage.process.signal(signal.SIGTERM)
        await until(lambda: stage.process.logged("drain_began"))
        for _ in range(5):
            said = await stage.quick()
            assert (said.status, said.header("connection")) == (200, "close")
        stage.gate.opened.set()
        assert (await rest(running))[1]
        stage.process.signal(signal.SIGTERM)  # nothing runs any more, and a minute would be waited for
        assert await stage.process.ended() == 0


async def test_what_runs_longer_than_the_drain_ends_with_an_error_event(tmp_path: Path) -> None:
    async with staged(tmp_path, limit=2, drain_s=0.5) as stage:
        running, waiting = await stage.streaming(4), await stage.waiting(3)
        stage.process.signal(signal.SIGTERM)
        for client in running:
            body, whole = await rest(client)
            assert not whole
            assert b"data: [DONE]" not in body
            error = orjson.loads(body.removeprefix(b"data: "))["error"]
            assert (error["reason"], error["code"]) == ("shutting_down", 503)
        for client in waiting:
            said = await client.answer()
            assert (said.status, said.header("connection"), said.header("retry-after")) == (503, "close", "1")
        assert await stage.process.ended() == 0
        settled = stage.process.logged("request_settled")
        assert [line["outcome"] for line in settled if "role" in line] == ["shut_down"] * 4


async def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    async with staged(tmp_path, settle_s=60.0, drain_s=60.0) as stage:
        running = await stage.streaming(3)
        stage.process.signal(signal.SIGTERM)
        await until(lambda: stage.process.logged("drain_began"))
        stage.process.signal(signal.SIGTERM)
        for client in running:
            body, whole = await rest(client)
            assert (b"shutting_down" in body, whole) == (True, False)
        assert await stage.process.ended() == 0


async def test_a_second_signal_does_not_wait_for_a_client_that_does_not_read(tmp_path: Path) -> None:
    async def flood(exchange: Exchange) -> None:
        await exchange.stream_head()
        while True:
            await exchange.event(content("x" * 50_000))

    async with staged(tmp_path, drain_s=60.0) as stage:
        stage.a.script = flood
        client = await stage.client()
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await client.send(request(body=chat(stream=True)))
        await until(lambda: stage.a.open)
        stage.process.signal(signal.SIGINT)
        await until(lambda: stage.process.logged("drain_began"))
        stage.process.signal(signal.SIGINT)
        assert await stage.process.ended() == 0


async def test_an_interrupt_drains_without_waiting_for_load_balancers(tmp_path: Path) -> None:
    async with staged(tmp_path, settle_s=60.0) as stage:
        [running] = await stage.streaming(1)
        idle = await stage.client()
        await idle.send(request("/v1/models", method="GET"))
        await idle.answer()
        stage.process.signal(signal.SIGINT)
        await stage.refuses()
        assert await idle.rest() == b""
        stage.gate.opened.set()
        assert (await rest(running))[1]
        assert await stage.process.ended() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_an_idle_proxy_ends_within_a_moment(tmp_path: Path, number: signal.Signals) -> None:
    async with staged(tmp_path) as stage:
        stage.process.signal(number)
        assert await stage.process.ended() == 0
        assert stage.process.other == []


async def test_a_proxy_that_is_stopped_while_it_starts_ends_cleanly(tmp_path: Path) -> None:
    """Its engines accept and say nothing, so it is still looking at them."""
    asked = asyncio.Event()

    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read(-1)
        writer.close()

    first = await asyncio.start_server(mute, "127.0.0.1", 0)
    second = await asyncio.start_server(mute, "127.0.0.1", 0)
    urls = [f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}" for server in (first, second)]
    values = {
        "listen": {"host": "127.0.0.1", "port": 0},
        "admin": {"port": 0},
        "backends": {"speculative": {"url": urls[0]}, "baseline": {"url": urls[1]}},
        "timeouts": {"settle_s": 0.0},
    }
    async with first, second, launched(tmp_path / "crossover.yaml", values) as process:
        async with asyncio.timeout(60):
            await asked.wait()
        process.signal(signal.SIGTERM)
        assert await process.ended() == 0
        assert process.other == []


# ---------------------------------------------------------------- reloading


async def effective(process: Process) -> dict[str, Any]:
    async with aiohttp.ClientSession(process.admin) as admin:
        values: dict[str, Any] = yaml.safe_load(await (await admin.get("/config")).text())
        return values


async def test_a_hangup_reloads_the_configuration(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        stage.process.signal(signal.SIGHUP)
        await until(lambda: stage.process.logged("config_reloaded"))
        assert stage.process.logged("config_reloaded")[0]["changes"] == []
        stage.process.write({**stage.values, "routing": {"leave_at": 33}})
        stage.process.signal(signal.SIGHUP)
        await until(lambda: len(stage.process.logged("config_reloaded")) == 2)
        assert (await effective(stage.process))["routing"]["leave_at"] == 33


async def test_an_edited_file_is_taken_over_by_itself(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        stage.process.write({**stage.values, "routing": {"leave_at": 44}, "log": {"level": "warning"}})

        async def taken_over() -> bool:
            return bool((await effective(stage.process))["routing"]["leave_at"] == 44)

        await until_told(taken_over)
        # The new level holds too: what is told below it is not written any more.
        before = len(stage.process.lines)
        assert (await stage.quick()).status == 200
        stage.process.write({**stage.values, "log": {"level": "loud"}})
        # The audit is the last of what a reload tells.
        await until(lambda: "audit" in [line["event"] for line in stage.process.lines[before:]])
        assert [line["event"] for line in stage.process.lines[before:]] == ["config_rejected", "audit"]
        assert "log.level" in stage.process.logged("config_rejected")[0]["problems"][0]
        assert (await effective(stage.process))["routing"]["leave_at"] == 44

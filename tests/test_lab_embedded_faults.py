"""Every fault an embedded engine can be asked for, as a client sees it."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import uvloop
from fakes.leaping import leaping

from proxy.lab.embedded import EmbeddedEngine, EngineOptions
from proxy.lab.faults import Fault, FaultKind, Planned

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 12, "ignore_eos": True}
STREAM = {**CHAT, "stream": True}


@contextlib.asynccontextmanager
async def _running() -> AsyncIterator[EmbeddedEngine]:
    one = EmbeddedEngine(EngineOptions(time_scale=0.05, health_latency_s=0.0))
    await one.start()
    try:
        yield one
    finally:
        await one.stop()


@pytest.fixture
async def engine() -> AsyncIterator[EmbeddedEngine]:
    async with _running() as one:
        yield one


async def _sent(engine: EmbeddedEngine, fault: str, body: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection(engine.host, engine.port)
    raw = json.dumps(body).encode()
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"x-engine-fault: %b\r\nContent-Length: %d\r\n\r\n%b" % (fault.encode(), len(raw), raw)
    )
    return reader, writer


async def _raw(engine: EmbeddedEngine, fault: str, body: Any = STREAM) -> tuple[bytes, bool]:
    """What one request gets back until the connection or the last chunk ends it, and whether it was reset."""
    reader, writer = await _sent(engine, fault, body)
    got, was_reset = b"", False
    try:
        while not got.endswith(b"\r\n0\r\n\r\n") and (part := await reader.read(65_536)):
            got += part
    except ConnectionResetError:
        was_reset = True
    finally:
        writer.close()
    return got, was_reset


async def _heard(engine: EmbeddedEngine, fault: str) -> bytes:
    """What a stream has got long after its sequence has ended in the engine; for a clock that leaps."""
    reader, writer = await _sent(engine, fault, STREAM)
    got = b""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(600.0):
            while part := await reader.read(65_536):
                got += part
    assert engine.books().finished == 1
    writer.close()
    return got


async def test_reset_ends_the_connection_before_any_byte(engine: EmbeddedEngine) -> None:
    assert await _raw(engine, "reset") == (b"", True)


def test_reset_resets_on_uvloop_too_whose_transports_are_not_asyncio_ones() -> None:
    async def reset_by_uvloop() -> tuple[bytes, bool]:
        engine = EmbeddedEngine(EngineOptions())
        await engine.start()
        try:
            async with asyncio.timeout(30):
                return await _raw(engine, "reset")
        finally:
            await engine.stop()

    assert uvloop.run(reset_by_uvloop()) == (b"", True)


@pytest.mark.parametrize(("arg", "contents"), [(1, 1), (3, 3)])
async def test_reset_stream_ends_it_after_so_many_chunks(engine: EmbeddedEngine, arg: int, contents: int) -> None:
    got, was_reset = await _raw(engine, f"reset-stream={arg}")
    # A reset may overtake bytes that were sent before it.
    assert was_reset
    assert got.count(b'"content":"') <= contents + 1
    assert b"[DONE]" not in got


async def test_die_mid_line_closes_in_the_middle_of_an_event(engine: EmbeddedEngine) -> None:
    got, was_reset = await _raw(engine, "die-mid-line=2")
    assert not was_reset
    assert got.count(b"\n\n") == 3
    assert not got.endswith(b"0\r\n\r\n")
    assert b'data: {"id":' in got.rpartition(b"\n\n")[2]


@pytest.mark.parametrize(("fault", "chunks"), [("truncate", 12), ("truncate=4", 4)])
async def test_truncate_ends_well_without_finish_and_done(engine: EmbeddedEngine, fault: str, chunks: int) -> None:
    got, _ = await _raw(engine, fault)
    assert got.endswith(b"0\r\n\r\n")
    assert b"[DONE]" not in got
    assert b'"length"' not in got
    assert got.count(b'"content":"') == chunks + 1


async def test_garbage_is_not_http(engine: EmbeddedEngine) -> None:
    got, _ = await _raw(engine, "garbage")
    assert got
    assert not got.startswith(b"HTTP/")


@pytest.mark.parametrize(("fault", "contents"), [("stall", 0), ("stall=2", 3)])
@leaping
async def test_stall_sends_the_head_and_so_many_chunks_and_falls_silent(fault: str, contents: int) -> None:
    async with _running() as engine:
        got = await _heard(engine, fault)
    assert got.startswith(b"HTTP/1.1 200")
    assert got.count(b'"content":"') == contents


async def test_silent_reads_and_never_answers(engine: EmbeddedEngine) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await _raw(engine, "silent")
    assert engine.open_sequences == 0


async def test_slow_answers_late(engine: EmbeddedEngine) -> None:
    loop = asyncio.get_running_loop()
    started_s = loop.time()
    got, _ = await _raw(engine, "slow=0.15")
    assert loop.time() - started_s >= 0.14
    assert b"[DONE]" in got


@pytest.mark.parametrize(("fault", "retry_after"), [("500", None), ("503", "2"), ("429", None)])
async def test_plain_errors_have_their_status_and_body(
    engine: EmbeddedEngine, fault: str, retry_after: str | None
) -> None:
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{engine.url}/v1/chat/completions", json=CHAT, headers={"x-engine-fault": fault}) as response,
    ):
        assert response.status == int(fault)
        assert response.headers.get("Retry-After") == retry_after
        assert "message" in json.dumps(await response.json())


async def test_queue_full_is_an_error_event_inside_a_200(engine: EmbeddedEngine) -> None:
    got, _ = await _raw(engine, "queue-full")
    assert got.startswith(b"HTTP/1.1 200")
    assert b'data: {"error":{"object":"error"' in got
    assert b"data: [DONE]" in got


@pytest.mark.parametrize("fault", ["reset-stream", "die-mid-line"])
async def test_a_fault_of_streams_cuts_a_plain_body_in_half(engine: EmbeddedEngine, fault: str) -> None:
    got, _ = await _raw(engine, fault, CHAT)
    assert not got.endswith(b"}")


async def test_an_unknown_fault_is_refused_with_the_known_ones(engine: EmbeddedEngine) -> None:
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{engine.url}/v1/chat/completions", json=CHAT, headers={"x-engine-fault": "boom"}) as response,
    ):
        assert response.status == 400
        assert "reset-stream" in (await response.json())["message"]


@leaping
async def test_a_closed_door_refuses_and_opens_by_itself() -> None:
    async with _running() as engine, aiohttp.ClientSession() as http:
        async with http.post(f"{engine.url}/faults", json={"kind": "refuse", "seconds": 5.0}) as response:
            assert response.status == 200
        for pause_s in (0.0, 4.0):
            await asyncio.sleep(pause_s)  # sleeps: on a clock that leaps
            with pytest.raises(aiohttp.ClientConnectionError):
                await http.get(f"{engine.url}/ready")
        await asyncio.sleep(2.0)  # sleeps: on a clock that leaps
        async with http.get(f"{engine.url}/ready") as response:
            assert response.status == 200


async def test_open_streams_live_on_behind_a_closed_door(engine: EmbeddedEngine) -> None:
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{engine.url}/v1/chat/completions", json={**STREAM, "max_tokens": 30}) as response,
    ):
        engine.close_door()
        assert (await response.read()).endswith(b"data: [DONE]\n\n")
    await engine.open_door()


async def test_a_killed_engine_resets_its_streams_and_comes_back_on_its_port(engine: EmbeddedEngine) -> None:
    port = engine.port
    async with aiohttp.ClientSession() as http:
        async with http.post(f"{engine.url}/v1/chat/completions", json={**STREAM, "max_tokens": 3000}) as response:
            engine.kill()
            with pytest.raises(aiohttp.ClientError):
                await response.read()
        await engine.until_idle()
        await engine.open_door()
        assert engine.port == port
        async with http.get(f"{engine.url}/ready") as response:
            assert response.status == 200


async def test_planned_faults_strike_until_they_are_used_up_or_cleared(engine: EmbeddedEngine) -> None:
    url = f"{engine.url}/v1/chat/completions"
    async with aiohttp.ClientSession() as http:

        async def statuses(count: int) -> list[int]:
            got = []
            for _ in range(count):
                async with http.post(url, json=CHAT) as response:
                    got.append(response.status)
            return got

        async with http.post(f"{engine.url}/faults", json={"kind": "503", "count": 2}) as response:
            assert (await response.json())["faults"] == [{"kind": "503", "count": 2}]
        assert await statuses(3) == [503, 503, 200]
        async with http.post(f"{engine.url}/faults", json={"kind": "500", "count": None, "seconds": 60}):
            pass
        assert await statuses(2) == [500, 500]
        async with http.delete(f"{engine.url}/faults") as response:
            assert (await response.json())["faults"] == []
        assert await statuses(1) == [200]


async def test_a_fault_everywhere_strikes_health_too_but_not_the_route_that_clears_it(engine: EmbeddedEngine) -> None:
    engine.faults.plan(Planned(Fault(FaultKind.ERROR_503), everywhere=True))
    async with aiohttp.ClientSession() as http:
        async with http.get(f"{engine.url}/ready") as response:
            assert response.status == 503
        async with http.delete(f"{engine.url}/faults") as response:
            assert response.status == 200
        async with http.get(f"{engine.url}/ready") as response:
            assert response.status == 200


@pytest.mark.parametrize("body", [{}, {"kind": "boom"}, {"kind": "500", "count": "x"}, []])
async def test_a_wrong_plan_is_refused_with_its_form(engine: EmbeddedEngine, body: Any) -> None:
    async with aiohttp.ClientSession() as http, http.post(f"{engine.url}/faults", json=body) as response:
        assert response.status == 400
        assert "KIND" in (await response.json())["error"]

"""What is told of a request that ended while its engine said nothing: not its client alone is named."""

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest
from fakes.engine import Exchange, content
from fakes.failing import hang
from fakes.freezing import DOWN_WITHIN_S, freezing
from fakes.held import Held
from fakes.leaping import leaping
from fakes.raw import RawClient, Said, ask, chat, request
from fakes.stage import Stage
from fakes.until import until

from proxy.logs.requests import way
from proxy.model import Role

MINE = "mine"
Meanwhile = Callable[[], Awaitable[object]]


async def told(stage: Stage) -> str:
    """The last sentence of the request's story."""
    said = (await ask(stage.app.admin_port, request(f"/explain/{MINE}", method="GET"))).json["sentences"]
    assert isinstance(said, list)
    return str(said[-1])


async def failed(stage: Stage) -> list[dict[str, object]]:
    """What the list of failures has."""
    found = (await ask(stage.app.admin_port, request("/failures", method="GET"))).json["failures"]
    assert isinstance(found, list)
    return found


def written(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, object]]:
    """The fields of each line of a request from now on."""
    lines: list[dict[str, object]] = []
    monkeypatch.setattr(way, "silent", False)
    monkeypatch.setattr(way, "write", lambda line: lines.append(json.loads(line)))
    return lines


async def left_after(stage: Stage, seconds: float, *, stream: bool = False) -> None:
    """A client that gives up."""
    async with RawClient(stage.app.port) as client:
        await client.send(request("/v1/chat/completions", chat(stream=stream), f"x-request-id: {MINE}"))
        await asyncio.sleep(seconds)  # sleeps: on a leaping loop
    await until(lambda: stage.ended, what="its end")


async def answered(stage: Stage) -> Said:
    return await stage.ask(f"x-request-id: {MINE}")


@leaping
async def test_client_that_leaves_a_silent_engine_is_not_the_only_one_who_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with freezing() as (stage, frozen, _):
        lines = written(monkeypatch)
        frozen.moves.clear()
        await left_after(stage, 8.4)
        silent = "speculative had given no sign of life for 7.9 s."
        assert await told(stage) == f"The client left after 8.4 s, before its answer had begun; {silent}"
        assert (lines[0]["outcome"], lines[0]["backend_out"]) == ("client_gone_waiting", "silent")
        assert lines[0]["silent_s"] == pytest.approx(7.9, abs=0.1)
        [listed] = await failed(stage)
        settled = listed["settled"]
        assert isinstance(settled, dict)
        assert (listed["request_id"], settled["failure"], settled["backend_out"]) == (MINE, None, "silent")
        assert settled["silent_s"] == pytest.approx(7.9, abs=0.1)
        frozen.moves.set()


@leaping
async def test_client_that_leaves_an_engine_that_is_down_is_told_of_that_as_well() -> None:
    async with freezing() as (stage, frozen, _):
        frozen.moves.clear()
        stage.app.drain_backend(Role.BASELINE, draining=True)
        await left_after(stage, 30.4)
        assert (await told(stage)).endswith("; speculative had given no sign of life for 30 s and counted as down.")
        frozen.moves.set()


@leaping
async def test_time_limit_is_told_with_the_engines_silence() -> None:
    async with freezing(timeouts={"first_byte_s": 12.0}) as (stage, frozen, _):
        frozen.moves.clear()
        stage.app.drain_backend(Role.BASELINE, draining=True)
        assert (await answered(stage)).status == 504
        said = await told(stage)
        assert "within timeouts.first_byte_s (first_byte_timeout); speculative had given no sign of life for 1" in said
        [listed] = await failed(stage)
        assert isinstance(listed["settled"], dict) and listed["settled"]["backend_out"] == "silent"
        frozen.moves.set()


@leaping
async def test_client_that_leaves_a_stream_which_stands_still_was_failed_by_the_engine() -> None:
    async with freezing() as (stage, frozen, _):

        async def begin(exchange: Exchange) -> None:
            await exchange.stream_head()
            await exchange.event(content("w"))
            frozen.moves.clear()
            await exchange.gone()

        frozen.script = begin
        await left_after(stage, 10.0, stream=True)
        assert "in the midst of its answer" in await told(stage)
        assert "; speculative had given no sign of life for 9" in await told(stage)
        assert [each["request_id"] for each in await failed(stage)] == [MINE]
        frozen.moves.set()


@leaping
async def test_one_that_was_moved_is_told_with_the_reason() -> None:
    async with freezing() as (stage, frozen, _):
        frozen.moves.clear()
        assert (await answered(stage)).header("x-crossover-reason") == "failover"
        page = await ask(stage.app.admin_port, request(f"/explain/{MINE}", method="GET"))
        moved = (
            "Speculative gave no sign of life any more, until it counted as down (backend_silent), so it was sent to "
            "baseline."
        )
        sentences = page.json["sentences"]
        assert isinstance(sentences, list)
        assert moved in sentences and sentences[-2].startswith("It ended well after 1")
        assert await failed(stage) == []
        frozen.moves.set()


@leaping
async def test_one_that_found_no_room_on_the_other_engine_names_the_first() -> None:
    held = Held()
    async with freezing(max_in_flight=(8, 1), queue={"max_wait_s": 30.0}, b=held) as (stage, frozen, _):
        frozen.moves.clear()
        mine = asyncio.create_task(answered(stage))
        await until(lambda: stage.app.desk.backend(Role.SPECULATIVE).silent, what="its silence")
        other = asyncio.create_task(stage.ask())
        assert (await mine).status == 503
        [listed] = await failed(stage)
        assert isinstance(listed["settled"], dict)
        told_of = {name: listed["settled"][name] for name in ("failure", "first_failure", "backend_out")}
        assert told_of == {"failure": "queue_timeout", "first_failure": "backend_silent", "backend_out": "down"}
        assert (await told(stage)).endswith("no sign of life for 47 s and counted as down.")
        held.opened.set()
        await other
        frozen.moves.set()


@leaping
async def test_client_that_leaves_a_busy_engine_is_told_alone() -> None:
    async with freezing() as (stage, busy, _):
        busy.script = hang
        await left_after(stage, 20.4)
        assert await told(stage) == "The client left after 20 s, before its answer had begun."
        assert await failed(stage) == []


@leaping
async def test_client_that_leaves_an_engine_which_says_it_is_not_ready_is_told_of_that_and_not_listed() -> None:
    async with freezing() as (stage, parting, _):
        parting.script, parting.ready = hang, False
        await left_after(stage, DOWN_WITHIN_S)
        assert await told(stage) == (
            "The client left after 19 s, before its answer had begun; speculative counted as down."
        )
        assert await failed(stage) == []

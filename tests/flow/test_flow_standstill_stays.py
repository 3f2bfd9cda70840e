"""What waits on an engine stays there while nobody is better for it, and while the engine says anything at all."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from fakes.engine import Exchange, Script, content, plain
from fakes.failing import hang
from fakes.freezing import A_PROBE_S, DOWN_WITHIN_S, Freezing, down, freezing, seen_down, stuck_on, went
from fakes.held import Held
from fakes.leaping import leaping
from fakes.raw import ask, chat, request
from fakes.stage import Stage
from fakes.until import until

from proxy.model import Role

BASELINE = Role.BASELINE
PAGES = ("/ready", "/health", "/v1/loads", "/server_info")
Out = Callable[[Stage, Freezing], Awaitable[None]]


async def drained(stage: Stage, other: Freezing) -> None:
    stage.app.drain_backend(BASELINE, draining=True)


async def frozen_too(stage: Stage, other: Freezing) -> None:
    other.moves.clear()


async def not_ready(stage: Stage, other: Freezing) -> None:
    other.ready = False
    await seen_down(stage, BASELINE)


@pytest.mark.parametrize("out", [drained, frozen_too, not_ready])
@leaping
async def test_it_waits_on_while_the_other_engine_takes_nothing_and_goes_there_when_it_does(out: Out) -> None:
    async with freezing() as (stage, frozen, other):
        frozen.moves.clear()
        [stuck] = await stuck_on(stage, frozen)
        await out(stage, other)
        await seen_down(stage)
        await asyncio.sleep(60.0)
        assert not stuck.done() and not other.requests and not other.asked()
        stage.app.drain_backend(BASELINE, draining=False)
        other.ready = True
        other.moves.set()
        await until(stuck.done, 2 * A_PROBE_S, what="its being moved")
        assert await stuck == ("baseline", "failover")
        frozen.moves.set()


@leaping
async def test_work_in_which_an_engine_says_nothing_is_made_twice_once_at_most() -> None:
    # Some engines answer nothing at all while they read a prompt: that they went on after 25 s is remembered.
    async with freezing() as (stage, busy, _):
        served = []
        for quiet_s in (25.0, 25.0, 45.0):
            busy.moves.clear()
            [work] = await stuck_on(stage, busy)
            await asyncio.sleep(quiet_s)
            busy.moves.set()
            served.append((await work)[0])
            await until(lambda: stage.app.desk.backend(Role.SPECULATIVE).health.up, what="its return")
            await asyncio.sleep(stage.app.settings.routing.ramp_s)
        assert served == ["baseline", "speculative", "speculative"]


@leaping
async def test_one_that_left_for_a_queue_has_the_first_engine_again_once_that_goes_on() -> None:
    held = Held()
    async with freezing(max_in_flight=(8, 1), b=held) as (stage, frozen, _):
        frozen.moves.clear()
        [stuck] = await stuck_on(stage, frozen, 1, "x-request-id: back")
        await until(lambda: stage.app.desk.backend(Role.SPECULATIVE).silent, what="its silence")
        full = asyncio.create_task(went(stage))
        await until(lambda: held.ids, what="the other engine's being full")
        await seen_down(stage)
        await until(lambda: stage.app.admission.waiting == 1, what="its wait for room")
        frozen.moves.set()
        assert (await stuck)[0] == "speculative"
        explained = await ask(stage.app.admin_port, request("/explain/back", method="GET"))
        told = " ".join(explained.json["sentences"])
        assert "Speculative gave no sign of life any more" in told and "had it again once it answered" in told
        held.opened.set()
        await full


@leaping
async def test_it_is_served_by_the_engine_that_goes_on_while_the_other_one_is_away() -> None:
    async with freezing() as (stage, frozen, _):
        frozen.moves.clear()
        [stuck] = await stuck_on(stage, frozen)
        stage.app.drain_backend(BASELINE, draining=True)
        await asyncio.sleep(60.0)
        frozen.moves.set()
        assert await stuck == ("speculative", "room")


@leaping
async def test_what_was_moved_is_not_moved_again_when_the_other_engine_stands_still_as_well() -> None:
    async with freezing() as (stage, frozen, other):
        other.script = Held()
        frozen.moves.clear()
        [stuck] = await stuck_on(stage, frozen)
        await until(lambda: other.requests, DOWN_WITHIN_S, what="its being moved")
        frozen.moves.set()
        await until(lambda: not down(stage), what="its being up")
        other.moves.clear()
        await seen_down(stage, BASELINE)
        await asyncio.sleep(60.0)
        assert not stuck.done() and len(frozen.asked()) == 1
        other.script.opened.set()
        assert await stuck == ("baseline", "failover")
        other.moves.set()


async def storing(exchange: Exchange) -> None:
    await exchange.answer(b'{"id":"resp_1","object":"response","status":"completed"}')


@leaping
async def test_request_that_names_what_one_engine_has_waits_for_that_engine() -> None:
    async with freezing() as (stage, frozen, other):

        async def ask_for(**body: object) -> tuple[str | None, str | None]:
            said = await ask(stage.app.port, request("/v1/responses", chat(**body)))
            return said.header("x-crossover-backend"), said.header("x-crossover-reason")

        frozen.script = storing
        await ask_for()
        frozen.moves.clear()
        stuck = asyncio.create_task(ask_for(previous_response_id="resp_1"))
        await until(frozen.asked, what="its being stuck")
        await seen_down(stage)
        await asyncio.sleep(60.0)
        assert not stuck.done() and not other.requests
        frozen.moves.set()
        assert await stuck == ("speculative", "state")


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
@leaping
async def test_answer_that_has_begun_is_waited_for(stream: bool) -> None:
    async with freezing() as (stage, frozen, other):

        async def begin(exchange: Exchange) -> None:
            if stream:
                await exchange.stream_head()
                await exchange.send(b"10\r\ndata: ")  # of an event that is not whole
            else:
                await exchange.head("200 OK", "content-type: application/json", "content-length: 2")
            frozen.moves.clear()
            await frozen.moves.wait()
            await exchange.send(b'{"a": 1}\n\n\r\n' if stream else b"{}")
            if stream:
                await exchange.chunk(b"data: [DONE]\n\n")
                await exchange.end()

        frozen.script = begin
        begun = asyncio.create_task(stage.ask(stream=stream))
        await seen_down(stage)
        await asyncio.sleep(60.0)
        assert not begun.done() and not other.requests
        frozen.moves.set()
        said = await begun
        assert (said.header("x-crossover-backend"), said.whole) == ("speculative", True)


# ---------------------------------------------------------------- an engine that is down and generates all the same


def saying(status: str) -> Script:
    async def say(exchange: Exchange) -> None:
        await exchange.answer(b"", status)

    return say


async def close(exchange: Exchange) -> None:
    exchange.writer.close()


async def half(exchange: Exchange) -> None:
    await exchange.head("200 OK", "content-length: 9")
    await exchange.gone()


async def page_only(exchange: Exchange) -> None:
    """Hang; what the proxy asks besides is answered."""
    await exchange.gone()


BAD: dict[str, tuple[Script, tuple[str, ...]]] = {
    "500": (saying("500 Internal Server Error"), PAGES),
    "503": (saying("503 Service Unavailable"), PAGES),
    "closes": (close, PAGES),
    "half": (half, PAGES),
    "page only": (page_only, ("/ready", "/health")),
}


@pytest.mark.parametrize("bad", BAD)
@leaping
async def test_long_prefill_is_left_alone_though_its_engines_probes_fail(bad: str) -> None:
    """It says something to whoever asks, so that it does not stand still."""
    page, paths = BAD[bad]
    async with freezing() as (stage, busy, other):
        busy.script = held = Held()
        reading = asyncio.create_task(went(stage))
        await until(lambda: held.ids, what="its being read")
        busy.pages = dict.fromkeys(paths, page)
        await until(lambda: down(stage), 30.0, what="its being down")
        await asyncio.sleep(60.0)
        assert not reading.done() and not other.requests
        held.opened.set()
        assert await reading == ("speculative", "room")
        assert stage.ended[0].attempts == 1


@leaping
async def test_long_prefill_is_left_alone_though_its_engine_takes_no_new_connection() -> None:
    """As one does that is told to stop, until what runs there has ended."""

    async def parting(exchange: Exchange) -> None:
        await exchange.answer(b"{}", "200 OK", "connection: close")
        exchange.writer.close()

    async with freezing() as (stage, busy, other):
        busy.script = held = Held()
        reading = asyncio.create_task(went(stage))
        await until(lambda: held.ids, what="its being read")
        busy.pages = dict.fromkeys(PAGES, parting)
        await asyncio.sleep(5.0)
        busy._server.close()
        await until(lambda: down(stage), 30.0, what="its being down")
        await asyncio.sleep(60.0)
        assert not reading.done() and not other.requests
        held.opened.set()
        assert await reading == ("speculative", "room")


@leaping
async def test_long_prefill_is_left_alone_where_others_streams_flow() -> None:
    async def flow_or_read(exchange: Exchange) -> None:
        if b'"stream":false' in exchange.request.body:
            await asyncio.sleep(60.0)
            return await plain(exchange)
        await exchange.stream_head()
        for number in range(70):
            await exchange.event(content(f"w{number}"))
            await asyncio.sleep(0.9)
        await exchange.event(content("", finish_reason="stop"))
        return await exchange.end()

    async with freezing() as (stage, busy, other):
        busy.script = flow_or_read
        busy.pages = dict.fromkeys(PAGES, hang)
        flowing = asyncio.create_task(stage.ask(stream=True))
        reading = asyncio.create_task(went(stage))
        assert await reading == ("speculative", "room")
        assert (await flowing).whole and not other.requests

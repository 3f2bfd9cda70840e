"""`explain` of a request that hangs, streams or waits: since when, on which engine, and what comes next."""

import asyncio

from fakes.engine import Exchange, content
from fakes.freezing import freezing, seen_down, stuck_on
from fakes.held import Held
from fakes.leaping import leaping
from fakes.raw import RawClient, ask, chat, request
from fakes.stage import Stage, staged
from fakes.until import until

from proxy.model import Role

MINE = "x-request-id: mine-12345"


async def told(stage: Stage, asked: str = "mine-12345") -> list[str]:
    said = await ask(stage.app.admin_port, request(f"/explain/{asked}", method="GET"))
    assert said.status == 200, said.json
    found = said.json["sentences"]
    assert isinstance(found, list)
    return found


@leaping
async def test_one_that_hangs_is_told_with_its_engines_silence_and_where_it_goes_next() -> None:
    async with freezing() as (stage, frozen, _):
        frozen.moves.clear()
        [stuck] = await stuck_on(stage, frozen, 1, MINE)
        await asyncio.sleep(8.0)  # sleeps: on a leaping loop
        *_, waits, engine, coming = await told(stage)
        assert waits.startswith("It waits for its answer from speculative, for 8")
        assert engine.startswith("Speculative has given no sign of life for 7") or "for 8" in engine
        assert coming.startswith("If speculative stays so until it counts as down, the request goes to baseline")
        assert (await told(stage, "mine-123"))[-1] == coming, "the beginning of its id is enough"
        await stuck
        assert any(each.startswith("It ended well") for each in await told(stage))
        frozen.moves.set()


@leaping
async def test_one_that_hangs_between_two_frozen_engines_is_told_to_stay() -> None:
    async with freezing(timeouts={"first_byte_s": 60.0}) as (stage, frozen, other):
        frozen.moves.clear()
        other.moves.clear()
        [stuck] = await stuck_on(stage, frozen, 1, MINE)
        await seen_down(stage, Role.SPECULATIVE)
        await seen_down(stage, Role.BASELINE)
        *_, engine, coming = await told(stage)
        assert engine.startswith("Speculative has given no sign of life for 1") and engine.endswith("counts as down.")
        assert coming.startswith("Baseline is no better, it does not answer its probes, so it waits where it is")
        assert "(timeouts.first_byte_s)" in coming
        frozen.moves.set()
        other.moves.set()
        await stuck


@leaping
async def test_a_stream_is_told_with_when_its_latest_came() -> None:
    async with freezing() as (stage, frozen, _):
        goes_on = asyncio.Event()

        async def slow(exchange: Exchange) -> None:
            await exchange.stream_head()
            await exchange.event(content("w"))
            await goes_on.wait()
            await exchange.chunk(b"data: [DONE]\n\n")
            await exchange.end()

        frozen.script = slow
        async with RawClient(stage.app.port) as client:
            await client.send(request("/v1/chat/completions", chat(stream=True), MINE))
            await until(lambda: stage.in_flight == 1, what="its coming")
            await asyncio.sleep(1.0)  # sleeps: on a leaping loop
            flows = await told(stage)
            assert any(each.startswith("Its answer comes from speculative") for each in flows)
            await asyncio.sleep(10.0)  # sleeps: on a leaping loop
            *_, stands, engine, coming = await told(stage)
            assert stands.startswith("Its answer has begun and stands still: nothing has come from speculative for 1")
            assert engine == "Speculative answers its probes and has 1 sequence in flight now."
            assert coming.startswith("An answer that has begun is never moved")
            goes_on.set()
            await until(lambda: stage.ended, what="its end")


async def test_one_that_waits_for_room_is_found_and_told() -> None:
    held = Held()
    async with (
        staged(held, held, max_in_flight=1) as stage,
        RawClient(stage.app.port) as one,
        RawClient(stage.app.port) as two,
        RawClient(stage.app.port) as three,
    ):
        for client in (one, two):
            await client.send(request("/v1/chat/completions", chat()))
        await until(lambda: stage.in_flight == 2)
        await three.send(request("/v1/chat/completions", chat(), MINE))
        await until(lambda: stage.app.admission.waiting == 1)
        assert (await told(stage))[-1].startswith("It waits for room, for ")
        assert (await told(stage, "mine-123"))[-1].endswith("(queue.max_wait_s) it is refused with status 503.")
        held.opened.set()
        await until(lambda: len(stage.ended) == 3)


async def test_the_latest_of_an_id_is_told_while_it_runs() -> None:
    held = Held()
    async with staged(held, held) as stage, RawClient(stage.app.port) as client:
        held.opened.set()
        await stage.ask(MINE)
        assert any(each.startswith("It ended well") for each in await told(stage))
        held.opened.clear()
        await client.send(request("/v1/chat/completions", chat(), MINE))
        await until(lambda: stage.in_flight == 1)
        assert any(each.startswith("It waits for its answer from") for each in await told(stage))
        held.opened.set()
        await until(lambda: len(stage.ended) == 2)

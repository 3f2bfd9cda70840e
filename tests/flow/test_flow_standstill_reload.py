"""What waits on an engine that stands still goes to the other one, also where a reload has taken the engine away."""

import asyncio
from collections.abc import Callable

import pytest
from fakes.freezing import DOWN_WITHIN_S, PROBED, Freezing, freezing, seen_down, stuck_on, went
from fakes.held import Held
from fakes.leaping import leaping, passed_s
from fakes.proxy import settings
from fakes.stage import Stage
from fakes.until import until

from proxy.model import Role

Urls = Callable[[Freezing, Freezing, Freezing, Freezing], tuple[str, str]]


def takes_over(stage: Stage, speculative: str, baseline: str) -> None:
    """What a reload does once the file is read, which a thread does that no leaping clock waits for."""
    stage.app._adopt(settings(speculative, baseline, health=PROBED))


@pytest.mark.parametrize("before", [True, False], ids=["frozen before", "frozen after"])
@pytest.mark.parametrize(
    "urls",
    [
        pytest.param(lambda _, b, c, __: (c.url, b.url), id="another in its place"),
        pytest.param(lambda _, __, c, d: (c.url, d.url), id="two others"),
        pytest.param(lambda _, b, c, __: (b.url, c.url), id="the other one in its place"),
        pytest.param(lambda a, b, _, __: (b.url, a.url), id="places changed"),
    ],
)
@leaping
async def test_what_is_stuck_leaves_an_engine_that_a_reload_has_taken_away(urls: Urls, before: bool) -> None:
    async with freezing() as (stage, frozen, other), Freezing() as third, Freezing(role="baseline") as fourth:
        frozen.script = held = Held()
        if before:
            frozen.moves.clear()
            [stuck] = await stuck_on(stage, frozen)
        else:
            stuck = asyncio.create_task(went(stage))
            await until(lambda: held.ids, what="its being read")
        takes_over(stage, *urls(frozen, other, third, fourth))
        if not before:
            await asyncio.sleep(60.0)
            assert not stuck.done(), "an engine that works is left alone, wherever it is"
            frozen.moves.clear()
        began_s = passed_s()
        _, why = await stuck
        assert passed_s() - began_s <= DOWN_WITHIN_S + 1.0  # the answer of an engine that is asked for the first time
        assert why == "failover"
        frozen.moves.set()
        held.opened.set()


@leaping
async def test_engine_that_is_taken_away_while_it_reads_a_prompt_is_asked_until_that_is_answered() -> None:
    async with freezing() as (stage, first, other), Freezing() as third:
        first.script = held = Held()
        reading = asyncio.create_task(went(stage))
        await until(lambda: held.ids, what="its being read")
        takes_over(stage, third.url, other.url)
        await asyncio.sleep(60.0)
        line = stage.app.pair._retired[0]
        assert not any(task.done() for task in line._tasks)
        held.opened.set()
        assert (await reading)[0] == "speculative"
        await until(lambda: not stage.app.pair._retired, what="its line being closed")
        assert all(task.done() for task in line._tasks)


@leaping
async def test_frozen_engine_that_is_taken_away_loses_what_waits_there_only_to_one_that_serves() -> None:
    async with freezing() as (stage, frozen, other), Freezing() as third:
        frozen.moves.clear()
        [stuck] = await stuck_on(stage, frozen)
        other.moves.clear()
        takes_over(stage, third.url, other.url)
        await seen_down(stage, Role.BASELINE)
        await asyncio.sleep(60.0)
        assert not stuck.done()
        frozen.moves.set()
        assert await stuck == ("speculative", "room")
        other.moves.set()


@leaping
async def test_what_an_engine_that_was_taken_away_says_of_itself_is_told_to_nobody() -> None:
    async with freezing() as (stage, first, other), Freezing() as third:
        first.script = held = Held()
        reading = asyncio.create_task(went(stage))
        await until(lambda: held.ids, what="its being read")
        takes_over(stage, third.url, other.url)
        first.moves.clear()
        first._server_info = lambda: {"version": "another"}  # type: ignore[method-assign]
        await asyncio.sleep(10.0)
        first.moves.set()
        dropped = stage.app.pair._retired[0].backend

        def told() -> bool:
            return dropped.facts is not None and dropped.facts.version == "another"

        await until(told, what="its facts")
        assert not any(each.numbers.get("version") == "another" for each in stage.app.watch.journal.entries)
        held.opened.set()
        await reading

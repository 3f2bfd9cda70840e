"""H17: health pages that are late, flap or lie; what generations show counts in both directions."""

import asyncio
from itertools import cycle
from typing import Any
from unittest.mock import patch

import pytest
from fakes.engine import Exchange, Script, content, either
from fakes.failing import EITHER_ROLE, STREAMING, Paged, fail, hang, metric, pinned, reset
from fakes.leaping import leaping
from fakes.proxy import settings
from fakes.stage import Stage, staged
from fakes.until import until

from proxy.model import Role
from proxy.routing.health import Evidence

PROBED = {"interval_s": 1.0, "timeout_s": 5.0}


def late(by_s: float) -> Script:
    async def answer(exchange: Exchange) -> None:
        await asyncio.sleep(by_s)
        await exchange.answer(b"")

    return answer


async def busy(exchange: Exchange) -> None:
    await exchange.answer(b"", "503 Service Unavailable")


async def starved(exchange: Exchange) -> None:
    """As SGLang says it when its own generation got no answer."""
    await asyncio.sleep(20.0)
    await busy(exchange)


async def good(exchange: Exchange) -> None:
    await exchange.answer(b"")


MISSED = pytest.mark.parametrize("missed", [fail, reset, hang], ids=["500", "reset", "hang"])


def by_turns(*pages: Script) -> Script:
    turn = cycle(pages)

    async def answer(exchange: Exchange) -> None:
        await next(turn)(exchange)

    return answer


class Watched:
    """A stage with a paged engine of a role, and every piece of evidence about it with the health that followed."""

    def __init__(self, stage: Stage, role: Role = Role.SPECULATIVE) -> None:
        engine = stage.a if role is Role.SPECULATIVE else stage.b
        assert isinstance(engine, Paged)
        self.stage, self.engine, self.role, self.backend = stage, engine, role, stage.app.desk.backend(role)
        self.told: list[tuple[Evidence, bool | None]] = []
        observe = stage.app.desk.observe_health

        def note(backend: Any, evidence: Evidence) -> None:
            observe(backend, evidence)
            if backend is self.backend:
                self.told.append((evidence, backend.health.up))

        stage.app.desk.observe_health = note  # type: ignore[method-assign]

    @property
    def changes(self) -> float:
        return metric(self.stage, "changes_total", kind="health_changed", role=self.role)


def test_h17_defaults_are_lenient() -> None:
    health = settings("http://127.0.0.1:1", "http://127.0.0.1:2", health={"interval_s": 1.0}).health
    defaults = type(health)()
    assert (defaults.timeout_s >= 5.0, defaults.max_misses, defaults.min_hits) == (True, 3, 2)


@pytest.mark.parametrize("by_s", [1.1, 4.9])
@leaping
async def test_h17_page_that_is_always_slow_changes_nothing(by_s: float) -> None:
    with patch("fakes.stage.FakeEngine", Paged):
        async with staged(health=PROBED) as stage:
            watched = Watched(stage)
            before, watched.engine.pages = watched.changes, {"/ready": late(by_s), "/health": late(by_s)}
            await asyncio.sleep(60.0)
            assert (watched.changes, watched.backend.health.up) == (before, True)
            assert {evidence for evidence, _ in watched.told} == {Evidence.HIT}


@pytest.mark.parametrize("missed", [fail, reset, hang, busy], ids=["500", "reset", "hang", "503"])
@EITHER_ROLE
@leaping
async def test_h17_page_that_fails_every_third_time_never_flaps(missed: Script, role: Role) -> None:
    with patch("fakes.stage.FakeEngine", Paged):
        async with staged(health=PROBED) as stage:
            watched = Watched(stage, role)
            before, watched.engine.pages = watched.changes, {"/ready": by_turns(good, good, missed)}
            await asyncio.sleep(60.0)
            assert (watched.changes, watched.backend.health.up) == (before, True)
            assert {evidence for evidence, _ in watched.told} >= {Evidence.HIT}


@MISSED
@EITHER_ROLE
@leaping
async def test_h17_page_that_fails_five_times_takes_the_engine_out_at_the_third_and_in_after_two_good_ones(
    missed: Script, role: Role
) -> None:
    with patch("fakes.stage.FakeEngine", Paged):
        async with staged(health=PROBED) as stage:
            watched = Watched(stage, role)
            watched.engine.pages = {"/ready": by_turns(*[missed] * 5, *[good] * 95)}
            await until(lambda: len(watched.told) >= 9, within_s=100, what="nine probes")
            seen = watched.told[watched.told.index((Evidence.MISS, True)) :][:7]
            assert [up for _, up in seen] == [True, True, False, False, False, False, True]


@MISSED
@EITHER_ROLE
@leaping
async def test_h17_flapping_page_cuts_no_running_stream(missed: Script, role: Role) -> None:
    async def patient(exchange: Exchange) -> None:
        await exchange.stream_head()
        await exchange.event(content("w0"))
        await asyncio.sleep(100.0)
        await exchange.event(content("w1", finish_reason="stop"))
        await exchange.end()

    with patch("fakes.stage.FakeEngine", Paged):
        async with staged(a=patient, b=patient, routing=pinned(role), health=PROBED) as stage:
            watched = Watched(stage, role)
            before, watched.engine.pages = watched.changes, {"/ready": by_turns(*[missed] * 5, *[good] * 5)}
            assert (await stage.ask(stream=True)).whole
            assert watched.changes - before >= 4, "the engine went down and came up while the stream ran"


@EITHER_ROLE
@leaping
async def test_h17_flowing_tokens_overrule_missed_probes(role: Role) -> None:
    async def flow(exchange: Exchange) -> None:
        await exchange.stream_head()
        for number in range(100):
            await exchange.event(content(f"w{number}"))
            await asyncio.sleep(1.0)
        await exchange.event(content("", finish_reason="stop"))
        await exchange.end()

    with patch("fakes.stage.FakeEngine", Paged):
        async with staged(a=flow, b=flow, routing=pinned(role), health=PROBED) as stage:
            watched = Watched(stage, role)
            before, watched.engine.pages = watched.changes, {"/ready": hang, "/health": hang}
            assert (await stage.ask(stream=True)).whole
            assert watched.changes == before


@STREAMING
@leaping
async def test_h17_five_generations_without_a_first_byte_overrule_pages_that_are_all_green(stream: bool) -> None:
    async with staged(a=hang, health=PROBED, timeouts={"first_byte_s": 30.0}) as stage:
        said = await asyncio.gather(*(stage.ask(stream=stream) for _ in range(5)))
        assert {each.status for each in said} == {200}
        assert (await stage.ask(stream=stream)).header("x-crossover-reason") == "only_eligible"


@leaping
async def test_h17_one_silent_generation_is_enough_when_the_engine_cannot_generate_for_its_own_page() -> None:
    """Requests are rare, so nothing else would tell: each would wait out the first byte's limit on the dead one."""
    with patch("fakes.stage.FakeEngine", Paged):
        async with staged(a=hang, health=PROBED, timeouts={"first_byte_s": 20.0}) as stage:
            assert isinstance(stage.a, Paged)
            stage.a.pages = {"/ready": good, "/health": starved}
            for _ in range(5):
                assert (await stage.ask()).header("x-crossover-backend") == "baseline"
                await asyncio.sleep(60.0)
            assert len(stage.a.requests) == 1, "requests were spent on an engine that had shown that it is dead"
            stage.a.script, stage.a.pages = either, {}
            await asyncio.sleep(40.0)
            assert (await stage.ask()).header("x-crossover-backend") == "speculative"


@leaping
async def test_h17_silent_generation_that_is_the_requests_own_fault_costs_the_engine_nothing() -> None:
    async def picky(exchange: Exchange) -> None:
        await (hang if exchange.request.header("x-odd") else either)(exchange)

    async with staged(a=picky, b=picky, health=PROBED, timeouts={"first_byte_s": 20.0}) as stage:
        before = metric(stage, "changes_total", kind="health_changed")
        for _ in range(5):
            assert (await stage.ask("x-odd: yes")).status == 504
            assert (await stage.ask()).header("x-crossover-backend") == "speculative"
        assert metric(stage, "changes_total", kind="health_changed") == before

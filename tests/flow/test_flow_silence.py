"""Engines that stand still: what they are sent meanwhile and what is told of it. Busy ones are not taken for such."""

import asyncio
import os
import signal
from unittest.mock import patch

import pytest
from fakes.engine import Exchange, content
from fakes.failing import Paged, hang, metric
from fakes.flaps import take_over
from fakes.freezing import PROBED, engine, freezing, went
from fakes.leaping import leaping, passed_s
from fakes.proxy import running, settings
from fakes.raw import ask, chat, request
from fakes.stage import staged
from fakes.until import until

from proxy.model import Role
from proxy.watch.watch import STEP_S

SPECULATIVE, BASELINE = Role
# A probe begins within one interval, and a second later its answer is late.
WITHIN_S = 2.1


@leaping
async def test_engine_that_stands_still_gets_no_more_requests_within_seconds_and_all_when_it_goes_on() -> None:
    async with freezing() as (stage, frozen, _):
        began_s = passed_s()
        frozen.moves.clear()
        stuck = asyncio.create_task(went(stage))
        await until(lambda: stage.app.desk.backend(SPECULATIVE).silent, what="its silence")
        assert passed_s() - began_s <= WITHIN_S
        while passed_s() - began_s < 12.0:
            assert await went(stage) == ("baseline", "silent")
            await asyncio.sleep(1.0)
        assert stage.app.desk.backend(SPECULATIVE).health.up, "it is silent long before it counts as down"
        assert stage.in_flight == 1
        frozen.moves.set()
        assert await stuck == ("speculative", "room")
        assert await went(stage) == ("speculative", "room")
        assert metric(stage, "changes_total", kind="silence_changed", role="speculative") == 2


@leaping
async def test_what_is_silent_is_told_to_who_looks() -> None:
    async with freezing() as (stage, frozen, _):
        frozen.moves.clear()
        await asyncio.sleep(WITHIN_S + STEP_S)
        told = stage.app.status()
        assert told["sentence"] == "New requests go to baseline, since speculative gives no sign of life."
        assert [(each["code"], each["severe"]) for each in told["troubles"]] == [("silent", False)]
        assert [(each.silent, each.up) for each in told["backends"]] == [(True, True), (False, True)]
        assert await went(stage) == ("baseline", "silent")
        frozen.moves.set()
        await asyncio.sleep(1.0 + STEP_S)
        assert stage.app.status()["troubles"] == []
        kinds = [entry.kind for entry in stage.app.watch.journal.newest(2)]
        assert kinds == ["silent_over", "silent"]


@leaping
async def test_an_engine_that_stands_still_is_silent_in_its_new_role_too() -> None:
    async with freezing() as (stage, frozen, other):
        frozen.moves.clear()
        await asyncio.sleep(WITHIN_S)
        await take_over(stage, other.url, frozen.url)
        assert stage.app.desk.backend(BASELINE).silent
        assert await went(stage) == ("speculative", "room")
        frozen.moves.set()
        await until(lambda: not stage.app.desk.backend(BASELINE).silent, what="its word")
        other.moves.clear()
        began_s = passed_s()
        await until(lambda: stage.app.desk.backend(SPECULATIVE).silent, what="its silence")
        assert passed_s() - began_s <= WITHIN_S, "how long its page takes is known from before"
        assert await went(stage) == ("baseline", "silent")
        other.moves.set()


@leaping
async def test_a_silence_that_is_over_before_anybody_looks_is_told_all_the_same() -> None:
    async with freezing() as (stage, *_):
        desk = stage.app.desk
        backend = desk.backend(SPECULATIVE)
        before = stage.app.watch.journal.written
        desk.listen(backend)
        desk.unanswered(backend)
        desk.spoke(backend)
        told = stage.app.watch.journal.newest(stage.app.watch.journal.written - before)
        assert [entry.kind for entry in told] == ["silent_over", "silent"]
        assert "gives nothing" in told[1].sentence or "has given nothing" in told[1].sentence


@leaping
async def test_who_names_a_silent_engine_gets_it() -> None:
    async with freezing(routing={"allow_header": True}) as (stage, frozen, _):
        frozen.moves.clear()
        await asyncio.sleep(WITHIN_S)
        named = asyncio.create_task(went(stage, "x-crossover-backend: speculative"))
        await until(lambda: stage.in_flight == 1)
        frozen.moves.set()
        assert await named == ("speculative", "header")


@leaping
async def test_two_that_stand_still_get_requests_as_before() -> None:
    async with freezing() as (stage, *both):
        for engine in both:
            engine.moves.clear()
        await asyncio.sleep(WITHIN_S)
        assert all(backend.silent for backend in stage.app.desk.backends)
        assert stage.app.readiness().ready
        assert stage.app.status()["sentence"].startswith("Neither backend gives a sign of life")
        waits = asyncio.create_task(went(stage))
        await until(lambda: stage.app.desk.backend(SPECULATIVE).book.in_flight == 1)
        for engine in both:
            engine.moves.set()
        assert await waits == ("speculative", "room")


@pytest.mark.parametrize("every_s", [0.1, 0.9])
@leaping
async def test_engine_that_answers_no_probe_while_its_streams_flow_is_never_silent(every_s: float) -> None:
    async def flow(exchange: Exchange) -> None:
        await exchange.stream_head()
        for number in range(int(30.0 / every_s)):
            await exchange.event(content(f"w{number}"))
            await asyncio.sleep(every_s)  # sleeps: on a leaping loop
        await exchange.event(content("", finish_reason="stop"))
        await exchange.end()

    with patch("fakes.stage.FakeEngine", Paged):
        async with staged(a=flow, health=PROBED) as stage:
            assert isinstance(stage.a, Paged)
            await asyncio.sleep(5.5)
            stage.a.pages = dict.fromkeys(("/ready", "/health", "/v1/loads", "/server_info"), hang)
            before = metric(stage, "changes_total")
            streams = [asyncio.create_task(stage.ask(stream=True)) for _ in range(2)]
            await asyncio.sleep(20.0)
            assert stage.app.desk.backend(SPECULATIVE).book.in_flight == 2
            streams.append(asyncio.create_task(stage.ask(stream=True)))
            for said in await asyncio.gather(*streams):
                assert (said.header("x-crossover-reason"), said.whole) == ("room", True)
            assert metric(stage, "changes_total") == before


async def test_engine_process_that_is_stopped_is_avoided_until_it_goes_on() -> None:
    probed = {"interval_s": 0.1, "timeout_s": 30.0}
    async with (
        engine(SPECULATIVE) as (pid, first),
        engine(BASELINE) as (_, second),
        running(settings(first, second, health=probed)) as app,
    ):
        sent = request(body=chat(max_tokens=4))
        backend = app.desk.backend(SPECULATIVE)
        assert (await ask(app.port, sent)).header("x-crossover-backend") == "speculative"
        os.kill(pid, signal.SIGSTOP)
        stuck = asyncio.create_task(ask(app.port, sent))
        await until(lambda: backend.silent, what="its silence")
        for _ in range(3):
            said = await ask(app.port, sent)
            assert (said.header("x-crossover-backend"), said.header("x-crossover-reason")) == ("baseline", "silent")
        assert app.desk.snapshot().in_flight == 1
        os.kill(pid, signal.SIGCONT)
        assert (await stuck).header("x-crossover-backend") == "speculative"
        await until(lambda: not backend.silent, what="its answer")
        assert (await ask(app.port, sent)).header("x-crossover-backend") == "speculative"
        assert app.desk.snapshot().in_flight == 0

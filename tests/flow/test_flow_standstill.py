"""What waits on an engine that goes down without a word goes to the other one."""

import asyncio
import os
import signal
from random import Random

import aiohttp
import pytest
from fakes.engine import Exchange
from fakes.failing import metric
from fakes.freezing import A_PROBE_S, DOWN_WITHIN_S, PROBED, engine, freezing, seen_down, stuck_on, went
from fakes.held import Held
from fakes.leaping import leaping, passed_s
from fakes.proxy import running, settings
from fakes.raw import Said, ask, chat, request
from fakes.stage import Stage
from fakes.until import until, until_told

from proxy.model import CircuitState, Outcome, Role

SPECULATIVE, BASELINE = Role


def in_flight(stage: Stage) -> tuple[int, int]:
    now = stage.app.desk.snapshot()
    return now.speculative.in_flight, now.baseline.in_flight


# ---------------------------------------------------------------- it moves


@leaping
async def test_what_is_stuck_goes_to_the_other_engine_as_soon_as_the_first_counts_as_down() -> None:
    async with freezing() as (stage, frozen, _):
        frozen.moves.clear()
        began_s = passed_s()
        [stuck] = await stuck_on(stage, frozen)
        await seen_down(stage)
        assert await stuck == ("baseline", "failover")
        assert passed_s() - began_s <= DOWN_WITHIN_S
        facts = await stage.ended_one()
        assert (facts.outcome, facts.attempts) == (Outcome.FINISHED, 2)
        assert (facts.first_failure, facts.first_failure_status, facts.failure) == ("backend_silent", None, None)
        assert metric(stage, "attempt_failures_total", role="speculative", code="backend_silent", status="none") == 1
        assert metric(stage, "retries_total", role="baseline") == 1
        frozen.moves.set()


@leaping
async def test_stream_of_which_the_head_alone_has_come_moves_like_any_other() -> None:
    """An engine's HTTP server may send it before anything has been computed, and the client has not got it."""
    async with freezing() as (stage, frozen, _):

        async def head_first(exchange: Exchange) -> None:
            await exchange.stream_head()
            frozen.moves.clear()
            await exchange.gone()

        frozen.script = head_first
        said = await stage.ask(stream=True)
        assert (said.header("x-crossover-backend"), said.whole) == ("baseline", True)
        facts = await stage.ended_one()
        assert (facts.attempts, facts.first_failure) == (2, "backend_silent")
        frozen.moves.set()


@leaping
async def test_frozen_engine_finds_the_connection_closed_when_it_goes_on() -> None:
    async with freezing() as (stage, frozen, _):
        frozen.moves.clear()
        [stuck] = await stuck_on(stage, frozen)
        await stuck
        async with asyncio.timeout(1.0):
            await frozen.asked()[0].gone()
        frozen.moves.set()


@leaping
async def test_its_place_is_counted_once_on_either_side_and_lingers_where_the_engine_may_still_have_it() -> None:
    held = Held()
    async with freezing(timeouts={"linger_s": 5.0}, b=held) as (stage, frozen, _):
        frozen.moves.clear()
        [stuck] = await stuck_on(stage, frozen)
        assert in_flight(stage) == (1, 0)
        await until(lambda: held.ids, DOWN_WITHIN_S, what="its being moved")
        assert in_flight(stage) == (1, 1)
        assert stage.app.desk.backend(SPECULATIVE).book.requests == 0, "it lingers there, no more"
        await asyncio.sleep(5.1)
        assert in_flight(stage) == (0, 1)
        held.opened.set()
        await stuck
        assert in_flight(stage) == (0, 0)
        frozen.moves.set()


@leaping
async def test_engine_that_goes_on_is_used_again_without_circuit_or_doubt() -> None:
    """Its health has taken it out once. A circuit beside that would keep it out for half a minute more."""
    async with freezing(circuit={"max_failures": 1}) as (stage, frozen, _):
        frozen.moves.clear()
        for stuck in await stuck_on(stage, frozen, 6):
            assert await stuck == ("baseline", "failover")
        backend = stage.app.desk.backend(SPECULATIVE)
        assert (backend.circuit.state, backend.failures.value) == (CircuitState.CLOSED, 0)
        assert not backend.health.doubtful
        frozen.moves.set()
        await until(lambda: backend.health.up, 3 * PROBED["interval_s"], what="its being up")
        assert frozen.asked()[0].request.header("x-crossover-attempt") == "1"


@leaping
async def test_who_had_named_the_frozen_engine_goes_to_the_other_one_as_after_any_failure() -> None:
    async with freezing(routing={"allow_header": True}) as (stage, frozen, _):
        frozen.moves.clear()
        [stuck] = await stuck_on(stage, frozen, 1, "x-crossover-backend: speculative")
        assert await stuck == ("baseline", "failover")
        frozen.moves.set()


@leaping
async def test_first_to_come_go_first_as_far_as_the_budget_lets_them_and_more_as_it_fills() -> None:
    async with freezing(retries={"reserve": 2, "max_ratio": 0.1}) as (stage, frozen, _):
        frozen.moves.clear()
        first, second, third = await stuck_on(stage, frozen, 3)
        await seen_down(stage)
        assert await first == await second == ("baseline", "failover")
        await asyncio.sleep(2 * A_PROBE_S)
        assert not third.done()
        for _ in range(10):
            assert await went(stage) == ("baseline", "only_eligible")
        await until(third.done, 2 * A_PROBE_S, what="its being moved")
        assert await third == ("baseline", "failover")
        frozen.moves.set()


@leaping
async def test_what_the_budget_does_not_cover_is_served_when_the_engine_goes_on() -> None:
    async with freezing(retries={"reserve": 0, "max_ratio": 0.0}) as (stage, frozen, _):
        frozen.moves.clear()
        stuck = await stuck_on(stage, frozen, 3)
        await asyncio.sleep(100.0)
        assert not any(each.done() for each in stuck)
        frozen.moves.set()
        assert await asyncio.gather(*stuck) == [("speculative", "room")] * 3
        assert {each.attempts for each in stage.ended} == {1}


@leaping
async def test_it_waits_for_room_on_the_other_engine_ahead_of_those_that_came_later() -> None:
    held = Held()
    async with freezing(max_in_flight=(8, 1), b=held) as (stage, frozen, _):
        frozen.moves.clear()
        [stuck] = await stuck_on(stage, frozen, 1, "x-request-id: stuck")
        await until(lambda: stage.app.desk.backend(SPECULATIVE).silent, what="its silence")
        others = [asyncio.create_task(went(stage, "x-request-id: before"))]
        await until(lambda: held.ids, what="the other engine being full")
        await seen_down(stage)
        others.append(asyncio.create_task(went(stage, "x-request-id: later")))
        await until(lambda: stage.app.admission.waiting == 2, what="two that wait for room")
        held.opened.set()
        assert await stuck == ("baseline", "failover")
        await asyncio.gather(*others)
        assert held.ids == ["before", "stuck", "later"]
        frozen.moves.set()


@leaping
async def test_without_a_queue_it_stays_where_it_is_until_the_other_engine_has_room() -> None:
    held = Held()
    async with freezing(max_in_flight=(8, 1), queue={"max_waiting": 0}, b=held) as (stage, frozen, _):
        frozen.moves.clear()
        first, second = await stuck_on(stage, frozen, 2)
        await until(lambda: held.ids, DOWN_WITHIN_S, what="the first being moved")
        await asyncio.sleep(60.0)
        assert (first.done(), second.done(), len(held.ids)) == (False, False, 1)
        held.opened.set()
        assert await first == await second == ("baseline", "failover")
        frozen.moves.set()


@pytest.mark.parametrize("seed", range(6))
@leaping
async def test_whatever_freezes_and_goes_on_everybody_who_stays_is_served_and_nothing_is_left(seed: int) -> None:
    rng = Random(seed)
    async with freezing(retries={"reserve": 5}, timeouts={"linger_s": 2.0}, queue={"max_wait_s": 300.0}) as (
        stage,
        *both,
    ):
        waits: list[asyncio.Task[Said]] = []
        for _ in range(150):
            for engine in both:
                if rng.random() < 0.05:
                    (engine.moves.clear if engine.moves.is_set() else engine.moves.set)()
            waits += [asyncio.create_task(stage.ask(stream=rng.random() < 0.5)) for _ in range(rng.randrange(3))]
            if waits and rng.random() < 0.2:
                rng.choice(waits).cancel()
            await asyncio.sleep(rng.random() * 2.0)
        for engine in both:
            engine.moves.set()
        said = await asyncio.gather(*waits, return_exceptions=True)
        stayed = [each for each in said if isinstance(each, Said)]
        assert {(each.status, each.whole) for each in stayed} == {(200, True)}
        await until(lambda: not stage.app.relay.trips, what="the end of those whose clients left")
        assert max(each.attempts for each in stage.ended) <= 2
        assert all(stage.circuit(role).state is CircuitState.CLOSED for role in Role)
        # Whether any moved is a matter of how long the engines had stood before.
        assert {each.first_failure for each in stage.ended} <= {"backend_silent", None}


# ---------------------------------------------------------------- a real process


async def running_there(url: str) -> int:
    async with aiohttp.ClientSession() as client, client.get(f"{url}/v1/loads?include=core") as answer:
        loads = (await answer.json())["loads"]
        return sum(each["num_running_reqs"] + each["num_waiting_reqs"] for each in loads)


async def test_engine_process_that_is_stopped_loses_its_request_to_the_other_one_and_drops_it_when_it_goes_on() -> None:
    probed = {"interval_s": 0.1, "timeout_s": 0.5, "max_misses": 2}
    async with (
        engine(SPECULATIVE) as (pid, first),
        engine(BASELINE) as (_, second),
        running(settings(first, second, health=probed)) as app,
    ):
        sent = request("/v1/chat/completions", chat(max_tokens=400), "content-type: application/json")
        assert (await ask(app.port, sent)).header("x-crossover-backend") == "speculative"
        os.kill(pid, signal.SIGSTOP)
        said = await ask(app.port, sent)
        assert (said.status, said.header("x-crossover-reason")) == (200, "failover")
        os.kill(pid, signal.SIGCONT)
        await until(lambda: app.desk.backend(SPECULATIVE).health.up, what="its being up")

        async def idle() -> bool:
            return await running_there(first) == 0

        await until_told(idle)
        assert app.desk.snapshot().in_flight == 0

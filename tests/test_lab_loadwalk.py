import asyncio

import pytest
from fakes.sse_server import Reply, SseServer, by, whole

from proxy.lab.loadcall import Shape, Target, open_session
from proxy.lab.loadreport import LevelSpec, Loop
from proxy.lab.loadwalk import Recipe, Walk, measure
from proxy.lab.prompts import PromptKind, choose
from proxy.model import Role
from proxy.tasks import end, running, spawn


def closed(concurrency: int) -> LevelSpec:
    return LevelSpec(Loop.CLOSED, concurrency)


def counted(requests: int, **more: object) -> Recipe:
    return Recipe(requests=requests, duration_s=None, warmup_s=0.0, **more)  # type: ignore[arg-type]


async def until_at(walk: Walk, spec: LevelSpec | None) -> None:
    """Wait until the walk is at a level; None is the wait for its last answers."""
    async with asyncio.timeout(30):
        while walk.progress().spec != spec:  # noqa: ASYNC110 - a walk tells nobody where it is
            await asyncio.sleep(0)


def threshold(server: SseServer, _: object) -> Reply:
    return Reply(whole(tokens=10), headers=by("speculative" if server.in_flight <= 2 else "baseline"))


@pytest.mark.parametrize("concurrency", [1, 3, 8])
async def test_a_counted_level_sends_exactly_its_requests_and_never_more_at_once(concurrency: int) -> None:
    async with SseServer(threshold) as server, open_session() as session:
        level = await measure(session, Target(server.url, "m"), closed(concurrency), counted(12))
    assert (level.requests, level.failed, len(server.bodies)) == (12, 0, 12)
    assert server.max_in_flight <= concurrency
    assert level.output_tokens == pytest.approx(120)
    assert sum(level.reasons.values()) == 12


async def test_a_closed_loop_keeps_its_concurrency_and_flows_from_level_to_level() -> None:
    async with SseServer(threshold) as server, open_session() as session:
        server.gate.clear()
        recipe = Recipe(warmup_s=0.0, duration_s=0.05)
        walking = spawn(Walk(session, Target(server.url, "m"), recipe).over([closed(2), closed(4)]), name="walk")
        await server.until(lambda: server.in_flight >= 2)
        await server.until(lambda: server.in_flight == 4)
        server.gate.set()
        low, high = await walking
    assert (low.spec.value, high.spec.value) == (2, 4)
    assert server.max_in_flight == 4
    assert running() == 0


async def test_workers_above_the_level_finish_their_request_and_stop() -> None:
    async with SseServer(threshold) as server, open_session() as session:
        server.gate.clear()
        recipe = Recipe(warmup_s=0.0, duration_s=0.05)
        walk = Walk(session, Target(server.url, "m"), recipe)
        walking = spawn(walk.over([closed(4), closed(1)]), name="walk")
        await server.until(lambda: server.in_flight == 4)
        await until_at(walk, None)
        server.gate.set()
        await walking
    assert len(server.bodies) == 4


async def test_an_open_loop_does_not_wait_for_answers() -> None:
    async with SseServer(threshold) as server, open_session() as session:
        server.gate.clear()
        spec = LevelSpec(Loop.OPEN, 500.0)
        walking = spawn(measure(session, Target(server.url, "m"), spec, counted(10)), name="walk")
        await server.until(lambda: server.in_flight == 10)
        server.gate.set()
        level = await walking
    assert (level.requests, len(server.bodies)) == (10, 10)


async def test_a_warm_up_is_sent_and_not_counted() -> None:
    async with SseServer(threshold) as server, open_session() as session:
        recipe = Recipe(requests=5, duration_s=None, warmup_s=0.05)
        level = await measure(session, Target(server.url, "m"), closed(2), recipe)
    assert level.requests == 5
    assert len(server.bodies) > 5


async def test_a_counted_level_ends_with_its_time_when_answers_do_not_come() -> None:
    async with SseServer(threshold) as server, open_session() as session:
        server.gate.clear()
        recipe = Recipe(requests=50, duration_s=0.05, warmup_s=0.0)
        walk = Walk(session, Target(server.url, "m"), recipe)
        walking = spawn(walk.over([closed(3)]), name="walk")
        await server.until(lambda: server.in_flight == 3)
        await until_at(walk, None)
        server.gate.set()
        (level,) = await walking
    assert (len(server.bodies), level.requests) == (3, 0)


async def test_prompts_are_those_of_the_seed_in_their_order() -> None:
    async with SseServer(threshold) as server, open_session() as session:
        recipe = counted(6, prompts=PromptKind.PROSE, seed=3, shape=Shape(max_tokens=5))
        await measure(session, Target(server.url, "m"), closed(1), recipe)
    assert [body["messages"] for body in server.bodies] == [choose(PromptKind.PROSE, 3, index) for index in range(6)]
    assert {body["max_tokens"] for body in server.bodies} == {5}


async def test_a_walk_stops_after_a_level_when_nothing_has_succeeded() -> None:
    async with SseServer(lambda *_: Reply(status=500)) as server, open_session() as session:
        levels = await Walk(session, Target(server.url, "m"), counted(2)).over([closed(2), closed(4)])
    assert [level.errors for level in levels] == [{"status 500": 2}]
    assert len(server.bodies) == 2


async def test_a_walk_goes_on_when_some_requests_fail() -> None:
    def every_other(server: SseServer, _: object) -> Reply:
        return Reply(whole(), headers=by("baseline")) if len(server.bodies) % 2 else Reply(status=503)

    async with SseServer(every_other) as server, open_session() as session:
        levels = await Walk(session, Target(server.url, "m"), counted(4)).over([closed(1), closed(1)])
    assert [(level.requests, level.errors) for level in levels] == [(2, {"status 503": 2})] * 2


async def test_cancelling_a_walk_gives_up_its_requests_and_keeps_what_was_measured() -> None:
    def three_then_hang(server: SseServer, _: object) -> Reply:
        return Reply(whole(), headers=by("speculative"), ending="end" if len(server.bodies) <= 3 else "hang")

    async with SseServer(three_then_hang) as server, open_session() as session:
        walk = Walk(session, Target(server.url, "m"), counted(9, asked=Role.SPECULATIVE))
        walking = spawn(walk.over([closed(1), closed(2)]), name="walk")
        await server.until(lambda: len(server.bodies) == 4)
        await end(walking)
        await server.until(lambda: server.in_flight == 0)
        (level,) = walk.levels()
    assert (level.requests, level.honoured, running()) == (3, 1.0, 0)
    assert walk.progress().in_flight == 0

"""H10, H21: a crowd never falls upon one backend, and waiting is neither failing nor for ever."""

import ast
import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from fakes.dialects import SAMPLES
from fakes.engine import Exchange, either
from fakes.held import Crowd, Held, answers, body_of, crowded, every_kind
from fakes.leaping import leaping as leaping_with_sockets
from fakes.raw import RawClient, Said, chat, request
from fakes.stage import Stage, staged
from fakes.until import turns, until
from fakes.waiting import Rig, leaping, run

from proxy.errors import QueueFull, QueueTimeout
from proxy.model import CircuitState, Outcome, Role

SPECULATIVE, BASELINE = Role.SPECULATIVE, Role.BASELINE
HERD = 200
WAITING = 300
THRESHOLD = 8
PLACES = 64
AWAY_S = 600.0
PROMPT = {"smoothing_s": 0.0, "min_dwell_s": 0.0}


# ---------------------------------------------------------------- H10: everybody picks the same idle engine


async def herd_of(crowd: Crowd, count: int, version: str = "1.1", **said: Any) -> list[RawClient]:
    """So many open connections, and then one write on each in the same turn of the loop."""
    herd = [await crowd.connect() for _ in range(count)]
    for number, client in enumerate(herd):
        sample, stream = every_kind(number)
        body = body_of(sample, stream=stream)
        if said:
            body = orjson.dumps({**orjson.loads(body), **said})
        client.writer.write(request(sample.target, body, version=version))
    return herd


@pytest.mark.parametrize("policy", ["overflow", "threshold"])
@pytest.mark.parametrize(("version", "host"), [("1.1", "127.0.0.1"), ("1.0", "::1")])
async def test_h10_of_two_hundred_that_come_in_one_tick_never_more_than_four_are_on_an_idle_engine(
    policy: str, version: str, host: str
) -> None:
    """All dialects, streaming and not; counted at the engine, before anybody has got an answer."""
    routing = {**PROMPT, "policy": policy, "leave_at": 4, "enter_at": 2}
    async with crowded(host=host, routing=routing) as (stage, crowd, held):
        herd = await herd_of(crowd, HERD, version)
        await until(lambda: stage.a.open + stage.b.open == HERD)
        assert (stage.a.most_open, stage.b.most_open) == (4, HERD - 4)
        held.opened.set()
        assert {said.status for said in await answers(herd)} == {200}


async def test_h10_a_tick_of_requests_for_two_answers_each_never_puts_more_than_four_sequences_on_it() -> None:
    routing = {"policy": "overflow", "leave_at": 5}  # the odd one stays free: a request of two is whole or not there
    async with crowded(routing=routing) as (stage, crowd, held):
        herd = [await crowd.connect() for _ in range(100)]
        for client in herd:
            client.writer.write(request(body=chat(n=2, stream=True)))
        await until(lambda: stage.a.open + stage.b.open == 100)
        assert (stage.a.most_open, stage.app.desk.snapshot().speculative.in_flight) == (2, 4)
        held.opened.set()
        assert {said.status for said in await answers(herd)} == {200}


async def test_h10_a_herd_that_fails_on_the_other_engine_does_not_fall_upon_this_one() -> None:
    """The baseline takes no connection: its whole share turns round in a few ticks."""
    routing = {"policy": "pinned", "pin": "baseline"}
    async with crowded(places=8, routing=routing, health={"interval_s": 300}) as (stage, crowd, held):
        await stage.b.close()
        herd = await herd_of(crowd, 60)
        await until(lambda: stage.a.open == 8)
        held.opened.set()
        said = await answers(herd)
        assert stage.a.most_open == 8
        assert {each.status for each in said} <= {200, 502}
        assert [each.status for each in said].count(200) >= 8


@pytest.mark.parametrize(
    "room", ["dispatch/desk.py", "dispatch/backends.py", "state/ledger.py", "state/backend.py", "routing/policy.py"]
)
def test_h10_choosing_and_counting_are_one_step_without_an_await(room: str) -> None:
    tree = ast.parse((Path(__file__).parents[2] / "proxy" / room).read_text(encoding="utf-8"))
    waits = (ast.Await, ast.AsyncFor, ast.AsyncWith, ast.AsyncFunctionDef, ast.Yield)
    assert not [node for node in ast.walk(tree) if isinstance(node, waits)]


class Back:
    """An engine that is away until it is back; then it holds what comes, and lets one after the other go."""

    def __init__(self) -> None:
        self.failing = True
        self.flowing = asyncio.Event()
        self.turn = asyncio.Semaphore(0)
        self.gone = 0

    async def __call__(self, exchange: Exchange) -> None:
        if self.failing:
            await exchange.answer(b"broken", "500 Internal Server Error")
            return
        if not self.flowing.is_set():
            await self.turn.acquire()
        self.gone += 1
        await either(exchange)

    def let_one_go(self) -> None:
        if self.turn.locked():
            self.turn.release()

    def let_all_go(self) -> None:
        self.flowing.set()
        for _ in range(WAITING):
            self.turn.release()


@contextlib.asynccontextmanager
async def waiting_crowd(how: str, role: Role, policy: str = "overflow") -> AsyncIterator[tuple[Stage, Back]]:
    """One backend away, as `how` says; the other one full; and three hundred in the queue. All are served."""
    back, held = Back(), Held()
    a, b = (back, either) if role is SPECULATIVE else (either, back)
    sections = {
        "routing": {**PROMPT, "policy": policy, "leave_at": THRESHOLD, "enter_at": 4},
        "queue": {"max_waiting": WAITING, "max_wait_s": 60.0},
        "circuit": {"max_failures": 2, "open_s": AWAY_S},
    }
    async with staged(a=a, b=b, max_in_flight=PLACES, **sections) as stage, contextlib.AsyncExitStack() as stack:
        await lose(stage, role, how)
        other = stage.b if role is SPECULATIVE else stage.a
        other.script = held
        crowd = Crowd(stage, stack)
        full = await herd_of(crowd, PLACES)
        await until(lambda: other.open == PLACES, what="the other backend full")
        herd = await herd_of(crowd, WAITING)
        await until(lambda: stage.app.admission.waiting == WAITING, what="the whole crowd waiting")
        yield stage, back
        back.let_all_go()
        held.opened.set()
        assert {said.status for said in await answers(full + herd)} == {200}


async def lose(stage: Stage, role: Role, how: str) -> None:
    if how == "health":
        (stage.a if role is SPECULATIVE else stage.b).ready = False
        await until(lambda: stage.app.desk.backend(role).health.up is False, what="down")
    else:
        stage.app.pin(role)
        while stage.circuit(role).state is CircuitState.CLOSED:
            assert (await stage.ask()).status == 200
        stage.app.pin(None)


async def come_back(stage: Stage, back: Back, role: Role, how: str) -> None:
    """Until the first request is there, and as many more as come with it."""
    back.failing = False
    engine = stage.a if role is SPECULATIVE else stage.b
    engine.most_open = 0
    if how == "health":
        engine.ready = True
    else:
        stage.app.desk.clock = stage.app.desk.ledger._clock = lambda: time.monotonic() + AWAY_S
    await until(lambda: engine.open, what="the first request on the backend that came back")
    await turns(50)


@pytest.mark.parametrize("policy", ["overflow", "threshold"])
@pytest.mark.parametrize("how", ["health", "circuit"])
async def test_h10_a_speculative_backend_that_comes_back_before_a_waiting_crowd_never_has_more_than_its_threshold(
    how: str, policy: str
) -> None:
    """Three hundred wait, the baseline is full: what the threshold does not allow goes on waiting."""
    async with waiting_crowd(how, SPECULATIVE, policy) as (stage, back):
        await come_back(stage, back, SPECULATIVE, how)
        assert stage.a.most_open <= THRESHOLD
        await until(lambda: back.let_one_go() or back.gone >= 5 * THRESHOLD, what="five times the threshold served")
        assert stage.a.most_open <= THRESHOLD


@pytest.mark.parametrize("policy", ["overflow", "threshold"])
@pytest.mark.parametrize("how", ["health", "circuit"])
async def test_h10_a_speculative_backend_that_comes_back_gets_few_at_first_and_then_more(how: str, policy: str) -> None:
    async with waiting_crowd(how, SPECULATIVE, policy) as (stage, back):
        await come_back(stage, back, SPECULATIVE, how)
        first = stage.a.most_open
        assert 0 < first < THRESHOLD
        await until(lambda: back.let_one_go() or stage.a.most_open > first, 20.0, what="more than at first")
        assert stage.a.most_open <= THRESHOLD


@pytest.mark.parametrize("how", ["health", "circuit"])
async def test_h10_a_baseline_that_comes_back_before_a_waiting_crowd_has_no_more_than_its_limit(how: str) -> None:
    async with waiting_crowd(how, BASELINE) as (stage, back):
        await come_back(stage, back, BASELINE, how)
        await until(lambda: back.let_one_go() or back.gone >= 20, what="some served")
        assert 0 < stage.b.most_open <= PLACES


# ---------------------------------------------------------------- H21: waiting counted as failing

CAPACITY, ASKED, RUN_S, WAIT_S, QUEUE = 8, 40, 3.0, 5.0, 20


@pytest.mark.parametrize("leavers", ["first", "last", "any"])
def test_h21_forty_requests_of_three_seconds_for_eight_places(leavers: str) -> None:
    """As reported, on a clock that leaps: eight run, twenty wait, twelve are refused at once; ten waiters leave; of the
    ten that stay eight start after three seconds, and two are refused after five."""

    async def scenario() -> None:
        rig = Rig(limits=(4, 4), max_waiting=QUEUE, max_wait_s=WAIT_S)
        began_s = rig.loop.time()
        ends: dict[int, tuple[str, float]] = {}

        async def one(number: int) -> None:
            try:
                place = await rig.admit(str(number))
                await asyncio.sleep(RUN_S)
                rig.finish(place)
                ends[number] = ("served", rig.loop.time() - began_s)
            except (QueueFull, QueueTimeout) as refused:
                assert refused.retry_after_s is not None
                ends[number] = (refused.code, rig.loop.time() - began_s)

        tasks = [asyncio.ensure_future(one(number)) for number in range(ASKED)]
        await turns(3)
        assert (rig.in_flight(), rig.admission.waiting) == (CAPACITY, QUEUE)
        assert [ends[number] for number in range(28, 40)] == [("queue_full", pytest.approx(0.0, abs=0.05))] * 12
        await asyncio.sleep(1.0)
        waiters = list(range(CAPACITY, CAPACITY + QUEUE))
        gone = {"first": waiters[:10], "last": waiters[10:], "any": random.Random(3).sample(waiters, 10)}[leavers]
        for number in gone:
            tasks[number].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        stayed = [number for number in waiters if number not in gone]
        assert rig.started == [str(number) for number in (*range(CAPACITY), *stayed[:8])]
        for numbers, end in (
            (range(CAPACITY), ("served", RUN_S)),
            (stayed[:8], ("served", 2 * RUN_S)),
            (stayed[8:], ("queue_timeout", WAIT_S)),
        ):
            assert [ends[number] for number in numbers] == [(end[0], pytest.approx(end[1], abs=0.1))] * len(numbers)
        assert (rig.in_flight(), rig.admission.waiting) == (0, 0)
        for backend in rig.desk.backends:
            assert (backend.circuit.state, backend.circuit.failures) == (CircuitState.CLOSED, 0)
            assert (backend.health.up, backend.failures.value) == (None, 0.0)

    run(scenario)


def untouched(stage: Stage) -> bool:
    """Whether the proxy thinks as well of both backends as before."""
    return all(
        backend.health.up
        and backend.circuit.state is CircuitState.CLOSED
        and not (backend.circuit.failures or backend.failures.value)
        for backend in stage.app.desk.backends
    )


@pytest.mark.parametrize(("version", "host"), [("1.1", "127.0.0.1"), ("1.0", "::1")])
async def test_h21_forty_clients_in_every_dialect_are_served_in_order_queued_or_refused_at_once(
    version: str, host: str
) -> None:
    limits = {"max_waiting": QUEUE, "max_wait_s": 60.0}
    async with crowded(places=4, host=host, queue=limits) as (stage, crowd, held):
        clients = await crowd.of_every_kind(ASKED, version)
        assert (stage.in_flight, stage.app.admission.waiting, len(held.ids)) == (CAPACITY, QUEUE, CAPACITY)
        refused = await answers(clients[28:])
        assert {said.status for said in refused} == {429}
        assert all(int(said.header("retry-after") or 0) >= 1 for said in refused)
        assert stage.app.admission.waiting == QUEUE  # nobody has had to wait for these refusals
        for client in clients[8:28:2]:
            client.leave(reset=True)
        await until(lambda: stage.app.admission.waiting == 10)
        held.opened.set()
        stayed = [number for number in range(28) if number < 8 or number % 2]
        assert {said.status for said in await answers([clients[number] for number in stayed])} == {200}
        # Places are given in order; which of two engines hears of its own first is the machine's doing.
        assert [record.request_id for record in stage.app.desk.ring] == [f"id{number}" for number in stayed]
        assert sorted(held.ids) == sorted(f"id{number}" for number in stayed)
        assert max(stage.a.most_open, stage.b.most_open) == 4
        assert stage.a.cut == stage.b.cut == 0
        await until(lambda: len(stage.ended) == ASKED)
        left = [facts for facts in stage.ended if facts.outcome is Outcome.CLIENT_GONE_WAITING]
        assert (len(left), {facts.attempts for facts in left}) == (10, {0})
        assert untouched(stage)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.dialect.value)
@pytest.mark.parametrize("stream", [False, True])
@leaping_with_sockets
async def test_h21_who_waits_in_vain_is_refused_at_the_limit_and_nobody_who_runs_is_cut(
    sample: Any, stream: bool
) -> None:
    """The running ones run for longer than anybody may wait."""
    wait_s = 0.1
    async with crowded(places=1, queue={"max_waiting": 20, "max_wait_s": wait_s}) as (stage, crowd, held):
        body = body_of(sample, stream=stream)
        running = [await crowd.ask(sample.target, body, name=name) for name in ("one", "two")]
        waiting = [await crowd.ask(sample.target, body, name=f"late{number}") for number in range(5)]
        refused = await answers(waiting)
        assert {said.status for said in refused} == {503}
        assert all(int(said.header("retry-after") or 0) >= 1 and spoken_as(sample, said) for said in refused)
        ended = sorted((facts.request_id, facts.failure, facts.attempts) for facts in stage.ended)
        assert ended == [(f"late{number}", "queue_timeout", 0) for number in range(5)]
        assert [facts.queue_s for facts in stage.ended] == [pytest.approx(wait_s, abs=0.01)] * 5
        held.opened.set()
        assert [(said.status, said.whole) for said in await answers(running)] == [(200, True)] * 2
        assert sorted(held.ids) == ["one", "two"]
        assert stage.a.cut == stage.b.cut == 0
        assert untouched(stage)


def spoken_as(sample: Any, said: Said) -> bool:
    """Whether a refusal has the shape that clients of the dialect read."""
    error = said.json["error"]
    if sample.dialect == "ollama":
        return isinstance(error, str)
    assert isinstance(error, dict)
    return "message" in error and (sample.dialect != "messages" or said.json["type"] == "error")


@leaping
async def test_h21_a_waiter_that_ran_out_of_time_is_not_started_later_for_nobody() -> None:
    rig = Rig(limits=(1, 1), max_waiting=QUEUE, max_wait_s=WAIT_S)
    held = [await rig.admit("a"), await rig.admit("b")]
    late = [await rig.queue(name) for name in "cde"]
    ends = await asyncio.gather(*late, return_exceptions=True)
    assert [type(end) for end in ends] == [QueueTimeout] * 3
    for place in held:
        rig.finish(place)
    await turns(10)
    assert (rig.started, rig.in_flight()) == (["a", "b"], 0)


@leaping
async def test_h21_a_request_runs_for_as_long_as_it_likes_after_its_wait() -> None:
    """The limit is on waiting: what waited nearly to the end of it then runs for ten times as long."""
    rig = Rig(limits=(1, 1), max_waiting=QUEUE, max_wait_s=WAIT_S)
    held = [await rig.admit("a"), await rig.admit("b")]
    waiter = await rig.queue("c")
    await asyncio.sleep(WAIT_S - 0.1)
    rig.finish(held[0])
    place = await waiter
    await asyncio.sleep(10 * WAIT_S)
    assert rig.in_flight() == 2
    rig.finish(place)
    rig.finish(held[1])


@leaping
async def test_h21_a_waiter_that_leaves_in_the_step_in_which_its_place_comes_is_not_started() -> None:
    rig = Rig(limits=(1, 1), max_waiting=QUEUE, max_wait_s=WAIT_S)
    held = [await rig.admit("a"), await rig.admit("b")]
    waiter = await rig.queue("c")
    rig.finish(held[0])
    await turns(1)
    assert rig.in_flight() == 2  # its place is given, and it has not heard of it
    waiter.cancel()
    await asyncio.wait([waiter])
    assert (rig.started, rig.in_flight()) == (["a", "b"], 1)
    rig.finish(held[1])

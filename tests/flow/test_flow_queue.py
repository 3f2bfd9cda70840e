"""Waiting, refusing and healing, seen by clients: in order, within limits, and nothing of it is a backend's fault."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from fakes.engine import Exchange, either, plain
from fakes.leaping import leaping, passed_s
from fakes.raw import RawClient, Said, ask, chat, request
from fakes.stage import Stage, staged
from fakes.until import turns, until

from proxy.model import CircuitState, Outcome, Role

OPEN_S = 0.4
ASK_AGAIN_S = 0.02


class Gate:
    """An engine that answers when the gate opens, and keeps the ids in the order of their coming."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.ids: list[str] = []

    async def __call__(self, exchange: Exchange) -> None:
        self.ids.append(exchange.request.header("x-request-id") or "")
        await self.opened.wait()
        await either(exchange)


class Crowd:
    """Clients that have asked and wait for their answers."""

    def __init__(self, stage: Stage, stack: contextlib.AsyncExitStack) -> None:
        self.stage, self.stack = stage, stack

    async def join(self, name: str, target: str = "/v1/chat/completions") -> RawClient:
        """Ask; the request has been decided on when this returns."""
        client = await self.stack.enter_async_context(RawClient(self.stage.app.port))
        before = self.known
        await client.send(request(target, chat(), f"x-request-id: {name}"))
        await until(lambda: self.known > before, what=name)
        return client

    @property
    def known(self) -> int:
        stage = self.stage
        return stage.app.admission.waiting + len(stage.app.desk.ring) + len(stage.ended)


@contextlib.asynccontextmanager
async def crowded(gate: Gate, *, places: int = 4, **queue: float) -> AsyncIterator[tuple[Stage, Crowd]]:
    """Two engines of `places` each behind one gate."""
    limits = {"max_waiting": 20, "max_wait_s": 10.0, **queue}
    async with (
        staged(a=gate, b=gate, max_in_flight=places, queue=limits) as stage,
        contextlib.AsyncExitStack() as stack,
    ):
        yield stage, Crowd(stage, stack)
        gate.opened.set()


def untouched(stage: Stage) -> bool:
    """Whether the proxy thinks as well of both backends as before."""
    return all(
        backend.health.up and backend.circuit.state is CircuitState.CLOSED and not backend.circuit.failures
        for backend in stage.app.desk.backends
    )


# ---------------------------------------------------------------- waiting


async def test_a_refusal_says_what_is_full_and_when_to_come_again() -> None:
    async with crowded(Gate(), places=1, max_waiting=0) as (stage, crowd):
        await crowd.join("a")
        await crowd.join("b")
        said = await ask(stage.app.port, request(body=chat()))
        assert (said.status, said.header("retry-after"), said.whole) == (429, "1", True)
        error = said.json["error"]
        assert isinstance(error, dict)
        assert (error["type"], error["code"], error["param"]) == ("rate_limit_error", "queue_full", None)
        other = (await ask(stage.app.port, request("/v1/messages", chat()))).json
        assert isinstance(other["error"], dict)
        assert (other["type"], other["error"]["type"]) == ("error", "rate_limit_error")


async def test_a_refused_client_may_ask_again_on_its_connection() -> None:
    gate = Gate()
    async with crowded(gate, places=1, max_waiting=0) as (stage, crowd):
        await crowd.join("a")
        await crowd.join("b")
        async with RawClient(stage.app.port) as client:
            await client.send(request(body=chat()))
            assert (await client.answer()).status == 429
            gate.opened.set()
            await until(lambda: stage.in_flight == 0)
            await client.send(request(body=chat()))
            assert (await client.answer()).status == 200


@leaping
async def test_waiting_in_vain_ends_at_the_limit_and_cuts_no_running_request() -> None:
    gate = Gate()
    async with crowded(gate, places=1, max_wait_s=0.3) as (stage, crowd):
        running = [await crowd.join("a"), await crowd.join("b")]
        began_s = passed_s()
        said = await ask(stage.app.port, request(body=chat()))
        waited_s = passed_s() - began_s
        assert (said.status, said.header("retry-after")) == (503, "1")
        assert waited_s == pytest.approx(0.3, abs=0.05)
        [facts] = stage.ended
        assert (facts.failure, facts.attempts, facts.decision) == ("queue_timeout", 0, None)
        assert facts.queue_s == pytest.approx(waited_s, abs=0.05)
        gate.opened.set()
        assert {(await client.answer()).status for client in running} == {200}
        assert gate.ids == ["a", "b"]
        assert untouched(stage)


@leaping
async def test_the_time_of_waiting_is_told_apart_from_the_proxys_own() -> None:
    gate = Gate()
    async with crowded(gate, places=1) as (stage, crowd):
        clients = [await crowd.join(name) for name in "abc"]
        asyncio.get_running_loop().call_later(0.2, gate.opened.set)
        assert (await clients[2].answer()).status == 200
        await until(lambda: len(stage.ended) == 3)
        waited = next(facts for facts in stage.ended if facts.request_id == "c")
        assert waited.queue_s == pytest.approx(0.2, abs=0.05)
        assert waited.overhead_s == pytest.approx(0.0, abs=0.05)


async def test_clients_that_leave_whenever_they_like_leave_no_count_behind() -> None:
    """Two places, two hundred clients, each leaving within a few milliseconds: queued, placed or just being placed."""
    chance = random.Random(11)

    async def quick(exchange: Exchange) -> None:
        await turns(chance.randrange(20))
        await plain(exchange)

    async with staged(a=quick, b=quick, max_in_flight=1, queue={"max_waiting": 200}) as stage:

        async def visit() -> None:
            async with RawClient(stage.app.port) as client:
                await client.send(request(body=chat()))
                await turns(chance.randrange(400))
                client.leave(reset=chance.random() < 0.5)

        await asyncio.gather(*(visit() for _ in range(200)))
        await until(lambda: not stage.app.relay.trips)
        assert stage.in_flight == stage.app.admission.waiting == 0
        left = [facts for facts in stage.ended if facts.outcome is Outcome.CLIENT_GONE_WAITING]
        assert any(facts.attempts == 0 for facts in left)
        assert (await stage.ask()).status == 200


async def test_a_burst_over_the_limits_is_worked_off_without_a_failure() -> None:
    async with staged(max_in_flight=2, queue={"max_waiting": 200}) as stage:
        answers = await asyncio.gather(*(stage.ask(stream=True) for _ in range(150)))
        assert {said.status for said in answers} == {200}
        assert all(said.whole for said in answers)
        assert max(stage.a.most_open, stage.b.most_open) <= 2
        assert len(stage.a.requests) + len(stage.b.requests) == 150


# ---------------------------------------------------------------- busy is not broken


async def busy(exchange: Exchange) -> None:
    body = b'{"error":{"message":"The request queue is full.","type":"x","code":503}}'
    await exchange.answer(body, "503 Service Unavailable", "retry-after: 2", "x-ratelimit-remaining: 0")


async def test_a_busy_engine_is_passed_over_while_the_other_has_room() -> None:
    """Case H13."""
    async with staged(a=busy) as stage:
        answers = [await stage.ask() for _ in range(20)]
        assert {(said.status, said.header("x-crossover-backend")) for said in answers} == {(200, "baseline")}
        assert untouched(stage)


async def test_when_both_are_busy_the_client_hears_the_engines_own_words_and_is_served_once_they_recover() -> None:
    """Case H13."""
    free = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await (either if free.is_set() else busy)(exchange)

    async with staged(a=script, b=script) as stage:
        for _ in range(20):
            said = await stage.ask()
            assert (said.status, said.header("retry-after"), said.header("x-ratelimit-remaining")) == (503, "2", "0")
            assert b"queue is full" in said.body
        assert untouched(stage)
        free.set()
        assert (await stage.ask()).status == 200


# ---------------------------------------------------------------- what breaks heals


class Sick:
    """An engine that fails until it is told otherwise; `probed` has what became of the next request then."""

    def __init__(self, probed: Callable[[Exchange], Awaitable[None]]) -> None:
        self.probed = probed
        self.failing = True
        self.probes = 0

    async def __call__(self, exchange: Exchange) -> None:
        if self.failing:
            await exchange.answer(b"broken", "500 Internal Server Error")
        elif self.probes == 0:
            self.probes += 1
            await self.probed(exchange)
        else:
            await either(exchange)


async def hang(exchange: Exchange) -> None:
    await exchange.gone()
    raise ConnectionResetError


async def reject(exchange: Exchange) -> None:
    await exchange.answer(b'{"message":"too long"}', "400 Bad Request")


async def refuse(exchange: Exchange) -> None:
    exchange.reset()
    raise ConnectionResetError


@contextlib.asynccontextmanager
async def sick(engine: Sick) -> AsyncIterator[Stage]:
    """A stage whose speculative circuit has just opened, and whose engine has healed since."""
    circuit = {"max_failures": 2, "open_s": OPEN_S}
    async with staged(a=engine, circuit=circuit, retries={"reserve": 1000}) as stage:
        while stage.circuit().state is not CircuitState.OPEN:
            assert (await stage.ask()).status == 200
        engine.failing = False
        yield stage


async def heals(stage: Stage, since_s: float) -> None:
    """Ask until the speculative engine serves again; within two cool-downs of `since_s`, and a moment's grace."""
    clock = stage.app.desk.clock
    while stage.circuit().state is not CircuitState.CLOSED:
        assert clock() - since_s < 2 * OPEN_S + 0.2
        assert (await stage.ask()).status in (200, 400)
        await asyncio.sleep(ASK_AGAIN_S)  # sleeps: on a loop that leaps, where asking takes no time
    # What failed weighs a while longer, so that asking is not enough to be sent there.
    assert stage.app.desk.backend(Role.SPECULATIVE).eligible(stage.app.desk.plan.breaker, clock())


@leaping
async def test_a_circuit_heals_after_its_probe_was_left_by_its_client() -> None:
    """Case H14 (a)."""
    engine = Sick(hang)
    async with sick(engine) as stage, RawClient(stage.app.port) as client:
        since_s = stage.app.desk.clock()
        await probe_by(stage, engine, client)
        client.leave()
        await heals(stage, since_s)


@leaping
async def test_a_circuit_heals_after_its_probe_was_the_clients_own_fault() -> None:
    """Case H14 (b)."""
    engine = Sick(reject)
    async with sick(engine) as stage:
        since_s = stage.app.desk.clock()
        await heals(stage, since_s)
        assert engine.probes == 1


@leaping
async def test_a_circuit_heals_while_its_probe_hangs_for_ever() -> None:
    """Case H14 (c)."""
    engine = Sick(hang)
    async with sick(engine) as stage, RawClient(stage.app.port) as client:
        since_s = stage.app.desk.clock()
        await probe_by(stage, engine, client)
        await heals(stage, since_s)
        assert stage.a.open == 1


@leaping
async def test_a_circuit_heals_after_its_probe_was_refused() -> None:
    """Case H14 (d)."""
    engine = Sick(refuse)
    async with sick(engine) as stage:
        since_s = stage.app.desk.clock()
        await heals(stage, since_s)
        assert engine.probes == 1


async def probe_by(stage: Stage, engine: Sick, client: RawClient) -> None:
    """Let one client's request be the one that tries the engine."""
    while not engine.probes:
        circuit = stage.circuit()
        if circuit.state is CircuitState.OPEN:
            await until(lambda: stage.app.desk.snapshot().speculative.eligible, what="the cool-down")
        await client.send(request(body=chat()))
        await until(lambda: engine.probes)


@leaping
async def test_engines_that_stop_answering_and_recover_serve_again_without_a_restart() -> None:
    """Case H14: a spike against silence; nothing of it stays."""
    recovered = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await (either if recovered.is_set() else hang)(exchange)

    limits = {"first_byte_s": 0.3, "connect_s": 0.3, "linger_s": 0.0}
    async with staged(
        a=script, b=script, timeouts=limits, circuit={"open_s": OPEN_S}, queue={"max_wait_s": 0.3}
    ) as stage:
        answers = await asyncio.gather(*(stage.ask(stream=True) for _ in range(300)))
        assert {said.status for said in answers} <= {503, 504, 429}
        recovered.set()
        since_s = stage.app.desk.clock()
        said: Said = await stage.ask()
        while said.status != 200:
            assert stage.app.desk.clock() - since_s < 2 * OPEN_S
            said = await stage.ask()
            await asyncio.sleep(ASK_AGAIN_S)  # sleeps: on a loop that leaps, where asking takes no time
        assert {(await stage.ask()).status for _ in range(20)} == {200}


# ---------------------------------------------------------------- failing over to a backend that is full


async def refused(exchange: Exchange) -> None:
    await exchange.answer(b'{"error":{"message":"busy"}}', "503 Service Unavailable", "retry-after: 2")


async def broken(exchange: Exchange) -> None:
    await exchange.answer(b'{"error":{"message":"boom"}}', "500 Internal Server Error")


@contextlib.asynccontextmanager
async def survivor_full(gate: Gate, fault: Callable[[Exchange], Awaitable[None]], **queue: float) -> AsyncIterator[Any]:
    """The speculative engine fails whatever it gets; the baseline runs one request and has room for no other."""
    limits = {"max_waiting": 20, "max_wait_s": 10.0, **queue}
    async with (
        staged(
            a=fault,
            b=gate,
            max_in_flight=(8, 1),
            queue=limits,
            circuit={"max_failures": 1000},
            routing={"allow_header": True},
        ) as stage,
        RawClient(stage.app.port) as holder,
    ):
        await holder.send(request("/v1/chat/completions", chat(), "x-crossover-backend: baseline"))
        await until(lambda: gate.ids, what="the request that fills the baseline")
        yield stage
        gate.opened.set()


@pytest.mark.parametrize("fault", [refused, broken])
async def test_failed_request_waits_for_room_on_the_other_backend(fault: Callable[[Exchange], Awaitable[None]]) -> None:
    gate = Gate()
    async with survivor_full(gate, fault) as stage, RawClient(stage.app.port) as client:
        await client.send(request(body=chat()))
        await until(lambda: stage.app.admission.waiting == 1, what="the failed request in the queue")
        assert stage.app.desk.snapshot().in_flight == 1, "the failed attempt still counts while its request waits"
        gate.opened.set()
        said = await client.answer()
        assert (said.status, said.header("x-crossover-reason")) == (200, "failover")


async def test_failed_request_goes_before_those_that_came_later() -> None:
    gate = Gate()
    async with survivor_full(gate, refused) as stage, contextlib.AsyncExitStack() as stack:
        later = await stack.enter_async_context(RawClient(stage.app.port))
        await later.send(
            request("/v1/chat/completions", chat(), "x-request-id: later", "x-crossover-backend: baseline")
        )
        await until(lambda: stage.app.admission.waiting == 1, what="the later request in the queue")
        failed = await stack.enter_async_context(RawClient(stage.app.port))
        await failed.send(request("/v1/chat/completions", chat(), "x-request-id: failed"))
        await until(lambda: stage.a.requests and stage.app.admission.waiting == 2, what="the failed one in the queue")
        gate.opened.set()
        await later.answer()
        assert gate.ids[1:] == ["failed", "later"]


@pytest.mark.parametrize(("fault", "status"), [(refused, 503), (broken, 500)])
@pytest.mark.parametrize("queue", [{"max_waiting": 0}, {"max_wait_s": 0.05}])
async def test_failed_request_that_waits_in_vain_gets_what_its_engine_said(
    fault: Callable[[Exchange], Awaitable[None]], status: int, queue: dict[str, float]
) -> None:
    async with survivor_full(Gate(), fault, **queue) as stage:
        said = await stage.ask()
        assert (said.status, b"error" in said.body) == (status, True)
        await until(lambda: any(facts.first_failure for facts in stage.ended))
        assert [facts.failure_status for facts in stage.ended if facts.first_failure] == [status]
        assert said.header("retry-after") == ("2" if fault is refused else None)


async def test_client_that_leaves_while_its_failed_request_waits_leaves_nothing_behind() -> None:
    async with survivor_full(Gate(), refused) as stage:
        async with RawClient(stage.app.port) as client:
            await client.send(request(body=chat()))
            await until(lambda: stage.app.admission.waiting == 1, what="the failed request in the queue")
        await until(lambda: stage.app.admission.waiting == 0, what="the queue without it")
        assert (await stage.ended_one()).outcome is Outcome.CLIENT_GONE_WAITING
        assert stage.app.desk.snapshot().in_flight == 1


async def test_failed_requests_keep_their_own_order() -> None:
    gate = Gate()
    async with survivor_full(gate, refused) as stage, contextlib.AsyncExitStack() as stack:
        for number in range(4):
            client = await stack.enter_async_context(RawClient(stage.app.port))
            await client.send(request("/v1/chat/completions", chat(), f"x-request-id: failed{number}"))
            await until(lambda number=number: stage.app.admission.waiting == number + 1, what="it in the queue")
        gate.opened.set()
        await until(lambda: len(gate.ids) == 5, what="all served")
        assert gate.ids[1:] == ["failed0", "failed1", "failed2", "failed3"]


async def test_failed_request_does_not_wait_on_for_a_backend_that_takes_no_more() -> None:
    async with survivor_full(Gate(), refused) as stage, RawClient(stage.app.port) as client:
        await client.send(request(body=chat()))
        await until(lambda: stage.app.admission.waiting == 1, what="the failed request in the queue")
        stage.app.desk.drain(Role.BASELINE, draining=True)
        said = await client.answer()
        assert (said.status, said.header("retry-after")) == (503, "2")

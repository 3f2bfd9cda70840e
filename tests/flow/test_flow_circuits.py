"""What opens a circuit, what does not, and how it heals (H12, H14); poison is held against nobody."""

import asyncio

import pytest
from fakes.engine import Exchange, either, stream
from fakes.raw import RawClient, ask, chat, request
from fakes.stage import Stage, staged
from fakes.until import until

from proxy.model import CircuitState, Role
from proxy.routing.blame import MAX_SPARED

SLOW_PROBES = {"interval_s": 300}


async def fail(exchange: Exchange) -> None:
    await exchange.answer(b'{"object":"error","message":"boom","code":500}', "500 Internal Server Error")


async def refuse(exchange: Exchange) -> None:
    await exchange.answer(b"{}", "400 Bad Request")


async def poison(exchange: Exchange) -> None:
    """Breaks on a request that says so, and on no other."""
    await (fail if b"poison" in exchange.request.body else either)(exchange)


async def poisonous(stage: Stage) -> None:
    await ask(stage.app.port, request(body=chat(user="poison")))


# ---------------------------------------------------------------- circuits


async def test_client_errors_are_neutral_for_the_circuit() -> None:
    async with staged(a=refuse) as stage:
        before = stage.circuit()
        for _ in range(10):
            await stage.ask()
        assert stage.circuit() == before


async def test_client_errors_between_do_not_hide_real_failures() -> None:
    async def mixed(exchange: Exchange) -> None:
        await (fail if b"poison" in exchange.request.body else refuse)(exchange)

    async with staged(a=mixed) as stage:
        for _ in range(5):
            await poisonous(stage)
            await stage.ask()
        assert stage.circuit().state is CircuitState.OPEN


async def test_circuit_opens_when_only_one_engine_fails() -> None:
    async with staged(a=fail) as stage:
        for _ in range(5):
            await stage.ask()
        assert stage.circuit().state is CircuitState.OPEN


async def test_circuit_opens_when_one_engine_fails_and_nothing_may_be_retried() -> None:
    async with staged(a=fail, retries={"max_ratio": 0.0, "reserve": 0}) as stage:
        for _ in range(5):
            await stage.ask()
        assert stage.circuit().state is CircuitState.OPEN


@pytest.mark.parametrize("count", [5, 20])
async def test_poison_opens_no_circuit(count: int) -> None:
    async with staged(a=poison, b=poison) as stage:
        for _ in range(count):
            await poisonous(stage)
        states = {stage.circuit(role).state for role in Role}
        assert states == {CircuitState.CLOSED}, "a request that fails everywhere was held against an engine"


async def test_poison_at_once_opens_no_circuit() -> None:
    async with staged(a=poison, b=poison) as stage:
        await asyncio.gather(*(poisonous(stage) for _ in range(30)))
        assert {stage.circuit(role).state for role in Role} == {CircuitState.CLOSED}


async def test_poison_costs_others_nothing() -> None:
    async with staged(a=poison, b=poison) as stage:
        for _ in range(20):
            await poisonous(stage)
        said = await stage.ask()
        assert (said.status, said.header("x-crossover-backend")) == (200, "speculative")


async def test_engine_is_blamed_again_after_poison_when_it_alone_fails() -> None:
    async with staged(a=poison, b=poison) as stage:
        for _ in range(5):
            await poisonous(stage)
        stage.a.script = fail
        for _ in range(5):
            await stage.ask()
        assert stage.circuit().state is CircuitState.OPEN


async def test_engine_is_blamed_again_after_poison_when_nothing_may_be_retried_any_more() -> None:
    """No second attempt will ever show that it is the engine now: the suspicion has to end by itself."""
    async with staged(a=poison, b=poison, retries={"max_ratio": 0.0, "reserve": 1}) as stage:
        await poisonous(stage)
        stage.a.script = fail
        for _ in range(MAX_SPARED + 5):
            assert stage.circuit().state is CircuitState.CLOSED
            await stage.ask()
        assert stage.circuit().state is CircuitState.OPEN


async def test_refused_connections_always_count() -> None:
    async with staged(health=SLOW_PROBES) as stage:
        await stage.a.close()
        await stage.b.close()
        for _ in range(3):
            await stage.ask()
        assert [stage.circuit(role).failures for role in Role] == [3, 3]


async def test_first_engine_is_not_blamed_when_the_second_calls_the_request_wrong() -> None:
    async with staged(a=fail, b=refuse) as stage:
        await stage.ask()
        assert stage.circuit().failures == 0


async def test_engine_serves_again_after_its_circuit_has_cooled_down() -> None:
    async with staged(a=fail, circuit={"open_s": 0.1}) as stage:
        for _ in range(5):
            await stage.ask()
        stage.a.script = either
        await until(lambda: stage.app.desk.snapshot().speculative.eligible, what="the circuit letting a probe through")
        await stage.ask()
        assert stage.circuit().state is CircuitState.CLOSED


async def test_probe_place_is_free_again_when_its_client_leaves() -> None:
    began = asyncio.Event()

    async def hang(exchange: Exchange) -> None:
        began.set()
        await exchange.gone()

    async with staged(a=fail, circuit={"open_s": 0.1}) as stage:
        for _ in range(5):
            await stage.ask()
        stage.a.script = hang
        await until(lambda: stage.app.desk.snapshot().speculative.eligible, what="the circuit letting a probe through")
        async with RawClient(stage.app.port) as client:
            await client.send(request(body=chat()))
            await began.wait()
        await until(lambda: len(stage.ended) == 6, what="the end of the probe")
        assert stage.app.desk.snapshot().speculative.eligible, "a probe that was given up holds the circuit shut"


async def test_half_open_circuit_closes_at_the_first_event_of_a_long_stream() -> None:
    gate = asyncio.Event()

    async def gated(exchange: Exchange) -> None:
        await stream(exchange, gate=gate)

    async with staged(a=fail, circuit={"open_s": 0.1}) as stage:
        for _ in range(5):
            await stage.ask()
        stage.a.script = gated
        await until(lambda: stage.app.desk.snapshot().speculative.eligible, what="the circuit letting a probe through")
        async with RawClient(stage.app.port) as client:
            await client.send(request(body=chat(stream=True)))
            await client.reader.readuntil(b"w0")
            assert stage.circuit().state is CircuitState.CLOSED
            gate.set()
            await client.reader.readuntil(b"[DONE]")

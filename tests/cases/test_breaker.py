"""H12, H14: what opens a circuit, what does not, and that every one closes again. Busy ones: test_busy_engines.py."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from itertools import cycle
from unittest.mock import patch

import pytest
from fakes.engine import Exchange, FakeEngine, Script, content, either
from fakes.failing import (
    EITHER_ROLE,
    EVERY_FORM,
    EVERY_STREAM,
    PLAIN_CHAT,
    STREAMING,
    UNPROBED,
    Form,
    cut,
    fail,
    hang,
    metric,
    pinned,
    refusal,
    refusing,
    reset,
    scripts,
)
from fakes.leaping import leaping, passed_s
from fakes.raw import RawClient, ask, chat, request
from fakes.stage import Stage, staged
from fakes.until import until

from proxy import tasks
from proxy.model import CircuitState, Role

OPEN_S = 10.0
MAX_FAILURES = 5
CLIENT_FAULTS = ["400 Bad Request", "404 Not Found", "422 Unprocessable Entity"]
MORE_CLIENT_FAULTS = ["401 Unauthorized", "403 Forbidden", "405 No", "409 Conflict", "413 Too Large", "415 No"]


def status(code: str, body: bytes = b'{"error":{"message":"no"}}', *lines: str) -> Script:
    async def answer(exchange: Exchange) -> None:
        await exchange.answer(body, code, *lines)

    return answer


def marked(faults: Callable[[], str], otherwise: Script = either) -> Script:
    """Answers requests that say x-bad by one fault after another, others by `otherwise`."""

    async def answer(exchange: Exchange) -> None:
        await (status(faults()) if exchange.request.header("x-bad") else otherwise)(exchange)

    return answer


# ---------------------------------------------------------------- H12


@STREAMING
@EITHER_ROLE
@leaping
async def test_h12_fifty_bad_requests_take_no_engine_out_and_cost_others_nothing(stream: bool, role: Role) -> None:
    bad = cycle(CLIENT_FAULTS + MORE_CLIENT_FAULTS)
    first = marked(lambda: next(bad))
    async with staged(**scripts(role, first, either), routing=pinned(role), health=UNPROBED) as stage:
        before = stage.circuit(role)
        for number in range(50):
            assert 400 <= (await stage.ask("x-bad: yes", stream=stream)).status < 500
            if number % 5 == 4:
                said = await stage.ask(stream=stream)
                assert (said.status, said.header("x-crossover-backend")) == (200, role.value)
        assert stage.circuit(role) == before
        assert stage.app.desk.snapshot().of(role).recent_failures == 0


@EVERY_FORM
@leaping
async def test_h12_bad_requests_of_every_dialect_leave_the_circuit_alone(form: Form) -> None:
    async with staged(a=status("400 Bad Request"), health=UNPROBED) as stage:
        before = stage.circuit()
        for _ in range(MAX_FAILURES + 1):
            assert (await form.ask(stage)).status == 400
        assert stage.circuit() == before and not stage.b.requests


@EVERY_FORM
@leaping
async def test_h12_bad_requests_do_not_hide_failures_between_them(form: Form) -> None:
    bad = cycle(CLIENT_FAULTS)
    async with staged(a=marked(lambda: next(bad), fail), b=form.serve, health=UNPROBED) as stage:
        for number in range(MAX_FAILURES):
            assert stage.circuit().failures == number
            await form.ask(stage)
            await form.ask(stage, "x-bad: yes")
        assert stage.circuit().state is CircuitState.OPEN


@EVERY_STREAM
@pytest.mark.parametrize("code", [400, 500])
@leaping
async def test_h12_refusal_inside_a_200_counts_as_the_status_it_names(form: Form, code: int) -> None:
    async with staged(a=refusing(form, code), b=form.serve, health=UNPROBED) as stage:
        for number in range(MAX_FAILURES):
            said = await form.ask(stage)
            assert (said.status, said.body) == (200, refusal(form, 400)) if code == 400 else form.is_good(said)
            assert (len(stage.a.requests), len(stage.b.requests)) == (number + 1, 0 if code == 400 else number + 1)
        expected = CircuitState.CLOSED if code == 400 else CircuitState.OPEN
        assert stage.circuit().state is expected


@pytest.mark.parametrize("fault", [fail, reset])
@EITHER_ROLE
@STREAMING
@leaping
async def test_h12_bad_request_over_which_one_engine_stumbles_is_no_failure_where_the_other_calls_it_wrong(
    fault: Script, role: Role, stream: bool
) -> None:
    async def stumbles(exchange: Exchange) -> None:
        await (fault if exchange.request.header("x-bad") else either)(exchange)

    free = {"max_ratio": 1.0, "reserve": 1000}
    second = marked(lambda: CLIENT_FAULTS[0])
    async with staged(**scripts(role, stumbles, second), routing=pinned(role), retries=free, health=UNPROBED) as stage:
        for _ in range(2 * MAX_FAILURES):
            assert (await stage.ask("x-bad: yes", stream=stream)).status == 400
        assert (stage.circuit(role).state, stage.circuit(role).failures) == (CircuitState.CLOSED, 0)
        assert (await stage.ask(stream=stream)).header("x-crossover-backend") == role.value


@pytest.mark.parametrize("code", CLIENT_FAULTS)
@leaping
async def test_h12_bad_request_neither_closes_nor_opens_a_half_open_circuit(code: str) -> None:
    async with staged(a=fail, health=UNPROBED) as stage:
        await open_circuit(stage)
        stage.a.script = status(code)
        await asyncio.sleep(OPEN_S)
        assert str((await stage.ask()).status) == code[:3]
        assert stage.circuit().state is CircuitState.HALF_OPEN
        assert stage.app.desk.snapshot().speculative.eligible, "the probe's place was not given back"


# ---------------------------------------------------------------- H14

Probe = Callable[[Stage], AbstractAsyncContextManager[None]]


@dataclass
class Stopping(FakeEngine):
    """An engine that can refuse requests before it has read them, or stop reading altogether."""

    refuses: bool = False
    reads: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.reads.set()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refuses:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            await writer.drain()
            writer.transport.abort()
        else:
            await super()._connected(reader, writer)

    async def _serve(self, exchange: Exchange) -> None:
        await self.reads.wait()
        await super()._serve(exchange)


async def open_circuit(stage: Stage) -> None:
    for _ in range(MAX_FAILURES):
        await stage.ask()
    assert stage.circuit().state is CircuitState.OPEN


def answered(script: Script, *, stream: bool = False) -> Probe:
    """A probe that is answered so."""

    @contextlib.asynccontextmanager
    async def probe(stage: Stage) -> AsyncIterator[None]:
        stage.a.script = script
        await stage.ask(stream=stream)
        yield

    return probe


@contextlib.asynccontextmanager
async def cancelled(stage: Stage) -> AsyncIterator[None]:
    stage.a.script = hang
    async with RawClient(stage.app.port) as client:
        await client.send(PLAIN_CHAT.request())
        await until(lambda: stage.a.open, what="the probe reaching the engine")
    await until(lambda: not stage.app.relay.trips, what="the end of the probe")
    yield


@contextlib.asynccontextmanager
async def hung(stage: Stage) -> AsyncIterator[None]:
    stage.a.script = hang
    async with RawClient(stage.app.port) as client:
        await client.send(PLAIN_CHAT.request())
        await until(lambda: stage.a.open, what="the probe reaching the engine")
        yield


@contextlib.asynccontextmanager
async def silent_in_stream(stage: Stage) -> AsyncIterator[None]:
    async def fall_silent(exchange: Exchange) -> None:
        await exchange.stream_head()
        await exchange.chunk(b": nothing yet\n\n")
        await exchange.gone()

    stage.a.script = fall_silent
    async with RawClient(stage.app.port) as client:
        await client.send(request(body=chat(stream=True)))
        await client.head()
        yield


@contextlib.asynccontextmanager
async def refused_while_uploading(stage: Stage) -> AsyncIterator[None]:
    assert isinstance(stage.a, Stopping)
    stage.a.refuses = True
    await ask(stage.app.port, request(body=chat(padding="x" * (16 << 20))))
    stage.a.refuses = False
    yield


@contextlib.asynccontextmanager
async def not_connected(stage: Stage) -> AsyncIterator[None]:
    await stage.a.close()
    await stage.ask()
    await stage.a.listen()
    yield


async def error_event(exchange: Exchange) -> None:
    await exchange.stream_head()
    await exchange.event(content("w0"))
    await exchange.event({"error": {"message": "boom", "code": 500}})
    await exchange.end()


PROBES: dict[str, Probe] = {
    "cancelled": cancelled,
    "400": answered(status("400 Bad Request")),
    "hung": hung,
    "refused_while_uploading": refused_while_uploading,
    "500": answered(fail),
    "503": answered(status("503 Busy")),
    "429": answered(status("429 Slow")),
    "redirect": answered(status("307 Elsewhere", b"", "location: /")),
    "reset": answered(reset),
    "not_connected": not_connected,
    "cut": answered(cut, stream=True),
    "error_event": answered(error_event, stream=True),
    "silent_in_stream": silent_in_stream,
}


@pytest.mark.parametrize("name", PROBES)
@pytest.mark.parametrize("traffic", [True, False], ids=["traffic", "one_request"])
@leaping
async def test_h14_engine_serves_again_within_two_cool_downs_whatever_became_of_the_probe(
    name: str, traffic: bool
) -> None:
    with patch("fakes.stage.FakeEngine", Stopping):
        async with staged(a=fail, health=UNPROBED) as stage:
            await open_circuit(stage)
            await asyncio.sleep(OPEN_S)
            async with PROBES[name](stage):
                stage.a.script = either
                healthy_at_s = passed_s()
                if not traffic:
                    await asyncio.sleep(2 * OPEN_S - 0.5)
                while (await stage.ask()).header("x-crossover-backend") != "speculative":
                    assert passed_s() - healthy_at_s <= 2 * OPEN_S, "a healthy engine is kept out"
                    await asyncio.sleep(0.5)
                assert passed_s() - healthy_at_s <= 2 * OPEN_S
                assert stage.circuit().state is CircuitState.CLOSED


@leaping
async def test_h14_state_of_the_circuit_and_its_age_are_metrics() -> None:
    async with staged(a=fail, health=UNPROBED) as stage:
        assert metric(stage, "circuit_state", role="speculative") == 0
        await open_circuit(stage)
        await asyncio.sleep(6.0)
        assert metric(stage, "circuit_state", role="speculative") == 2
        assert 6.0 <= metric(stage, "circuit_state_age_seconds", role="speculative") < 9.0
        await asyncio.sleep(OPEN_S)
        async with hung(stage):
            assert metric(stage, "circuit_state", role="speculative") == 1
            assert metric(stage, "circuit_state_age_seconds", role="speculative") < 6.0


@leaping
async def test_h14_probe_is_in_flight_while_it_hangs() -> None:
    async with staged(a=fail, health=UNPROBED) as stage:
        await open_circuit(stage)
        await asyncio.sleep(OPEN_S)
        async with hung(stage):
            assert stage.circuit().state is CircuitState.HALF_OPEN
            assert (stage.in_flight, stage.app.desk.snapshot().speculative.in_flight) == (1, 1)
            assert metric(stage, "in_flight", role="speculative") == 1


SPIKE = 3000


async def spike(stage: Stage) -> list[int]:
    """Three thousand requests in two seconds, a twentieth at a time; the statuses they end with."""

    async def one(number: int) -> int:
        await asyncio.sleep(0.1 * (number * 20 // SPIKE))
        return (await stage.ask()).status

    return list(await asyncio.gather(*(one(number) for number in range(SPIKE))))


@pytest.mark.parametrize("first_byte_s", [600.0, 5.0], ids=["patient", "timing_out"])
@leaping
async def test_h14_spike_against_engines_that_stop_reading_leaves_no_trace(first_byte_s: float) -> None:
    with patch("fakes.stage.FakeEngine", Stopping):
        async with staged(
            timeouts={"first_byte_s": first_byte_s}, health={"interval_s": 1.0, "timeout_s": 5.0}
        ) as stage:
            assert isinstance(stage.a, Stopping) and isinstance(stage.b, Stopping)
            for engine in (stage.a, stage.b):
                engine.reads.clear()
            spiking = tasks.spawn(spike(stage), name="spike")
            await asyncio.sleep(30.0)
            for engine in (stage.a, stage.b):
                engine.reads.set()
            recovered_at_s = passed_s()
            assert set(await spiking) <= {200, 429, 503, 504}
            while (await stage.ask()).header("x-crossover-backend") != "speculative":
                assert passed_s() - recovered_at_s <= 2 * OPEN_S, "a healthy engine is kept out"
                await asyncio.sleep(0.5)
            said = await asyncio.gather(*(stage.ask() for _ in range(200)))
            assert {each.status for each in said} == {200}

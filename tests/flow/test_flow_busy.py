"""An engine that says it is busy is not broken (H13): the other serves, or the client gets the engine's word."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from fakes.engine import Exchange, content, either
from fakes.raw import RawClient, chat, request
from fakes.stage import Stage, staged
from fakes.until import until

from proxy.model import Outcome

Script = Callable[[Exchange], Awaitable[None]]
FULL = b'{"object":"error","message":"The request queue is full.","type":"503","param":null,"code":503}'
QUEUE_FULL = {
    "error": {"object": "error", "message": "full", "type": "SERVICE_UNAVAILABLE", "param": None, "code": 503}
}


async def full(exchange: Exchange) -> None:
    await exchange.answer(FULL, "503 Service Unavailable", "retry-after: 7", "x-engine: a")


async def limited(exchange: Exchange) -> None:
    limits = ("retry-after-ms: 1500", "x-ratelimit-remaining-requests: 0", "x-ratelimit-reset-requests: 2s")
    await exchange.answer(b'{"error":{"message":"slow"}}', "429 Too Many Requests", *limits)


async def full_stream(exchange: Exchange) -> None:
    """As SGLang says it: HTTP 200, an error event, [DONE]."""
    await exchange.stream_head()
    await exchange.event(QUEUE_FULL)
    await exchange.chunk(b"data: [DONE]\n\n")
    await exchange.end()


async def aborted_stream(exchange: Exchange) -> None:
    """The same after the engine's own hop has turned the status into a plain number."""
    await exchange.stream_head()
    await exchange.event(content("", finish_reason="abort"))
    await exchange.chunk(b"data: [DONE]\n\n")
    await exchange.end()


async def hold(exchange: Exchange) -> None:
    await exchange.gone()


async def take_both(stage: Stage, first: RawClient, second: RawClient) -> None:
    """Have both engines at their limit of one."""
    for client in (first, second):
        await client.send(request(body=chat()))
    await until(lambda: stage.in_flight == 2, what="both engines being taken")


PLAIN = pytest.mark.parametrize("busy", [full, limited])
STREAM = pytest.mark.parametrize("busy", [full_stream, aborted_stream])


@PLAIN
async def test_other_engine_serves_when_the_first_is_busy(busy: Script) -> None:
    async with staged(a=busy) as stage:
        said = await stage.ask()
        assert (said.status, said.header("x-crossover-backend")) == (200, "baseline")


@STREAM
async def test_other_engine_serves_when_the_first_event_says_busy(busy: Script) -> None:
    async with staged(a=busy) as stage:
        said = await stage.ask(stream=True)
        assert (said.status, said.header("x-crossover-backend"), b"w2" in said.body) == (200, "baseline", True)


@STREAM
async def test_nothing_of_a_busy_stream_reaches_the_client(busy: Script) -> None:
    async with staged(a=busy) as stage:
        body = (await stage.ask(stream=True)).body
        assert b"SERVICE_UNAVAILABLE" not in body and b"abort" not in body and body.count(b"[DONE]") == 1


async def test_first_event_that_says_busy_does_not_wait_for_the_rest_of_its_stream() -> None:
    async def endless(exchange: Exchange) -> None:
        await exchange.stream_head()
        await exchange.event(QUEUE_FULL)
        await exchange.gone()

    async with staged(a=endless) as stage:
        assert (await stage.ask(stream=True)).header("x-crossover-backend") == "baseline"


@PLAIN
async def test_busy_is_free_of_the_retry_budget(busy: Script) -> None:
    async with staged(a=busy, retries={"max_ratio": 0.0, "reserve": 0}) as stage:
        assert (await stage.ask()).status == 200


async def test_engines_status_and_body_pass_when_both_are_busy() -> None:
    async with staged(a=full, b=full) as stage:
        said = await stage.ask()
        assert (said.status, said.body) == (503, FULL)


async def test_retry_after_passes_when_both_are_busy() -> None:
    async with staged(a=full, b=full) as stage:
        assert (await stage.ask()).header("retry-after") == "7"


@pytest.mark.parametrize("name", ["retry-after-ms", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"])
async def test_limit_headers_pass_when_both_are_busy(name: str) -> None:
    async with staged(a=limited, b=limited) as stage:
        assert (await stage.ask()).header(name) is not None


async def test_busy_answer_passes_when_there_is_no_second_engine() -> None:
    async with staged(a=full, health={"interval_s": 300}) as stage:
        await stage.b.close()
        said = await stage.ask()
        assert (said.status, said.body, said.header("retry-after")) == (503, FULL, "7")


@STREAM
async def test_client_gets_a_true_503_when_both_streams_say_busy(busy: Script) -> None:
    async with staged(a=busy, b=busy) as stage:
        said = await stage.ask(stream=True)
        assert (said.status, said.header("content-type")) == (503, "application/json")


@STREAM
async def test_client_is_told_when_to_come_again_when_both_streams_say_busy(busy: Script) -> None:
    async with staged(a=busy, b=busy) as stage:
        assert (await stage.ask(stream=True)).header("retry-after") == "1"


async def test_error_of_ours_has_the_openai_shape_when_both_streams_say_busy() -> None:
    async with staged(a=full_stream, b=full_stream) as stage:
        error = (await stage.ask(stream=True)).json["error"]
        assert isinstance(error, dict)
        assert (error["type"], error["code"]) == ("overloaded_error", "backend_busy")


@pytest.mark.parametrize("busy", [full, limited, full_stream, aborted_stream])
async def test_circuit_is_untouched_when_engines_are_busy(busy: Script) -> None:
    async with staged(a=busy, b=busy) as stage:
        before = stage.circuit()
        for _ in range(10):
            await stage.ask(stream=True)
        assert stage.circuit() == before


async def test_busy_engine_draws_no_more_weight_than_an_idle_one() -> None:
    async with staged(a=full) as stage:
        for _ in range(10):
            await stage.ask()
        assert stage.app.desk.snapshot().speculative.recent_failures == 0


async def test_outcome_is_failed_before_commit_when_both_are_busy() -> None:
    async with staged(a=full, b=full) as stage:
        await stage.ask()
        assert (await stage.ended_one()).outcome is Outcome.FAILED_BEFORE_COMMIT


async def test_requests_succeed_at_once_after_the_engines_have_recovered() -> None:
    async with staged(a=full, b=full) as stage:
        for _ in range(20):
            await stage.ask()
        stage.a.script = stage.b.script = either
        assert (await stage.ask()).status == 200


async def test_abort_in_the_middle_of_a_stream_passes_as_it_is() -> None:
    async def aborted(exchange: Exchange) -> None:
        await exchange.stream_head()
        await exchange.event(content("w0"))
        await exchange.event(content("", finish_reason="abort"))
        await exchange.chunk(b"data: [DONE]\n\n")
        await exchange.end()

    async with staged(a=aborted) as stage:
        said = await stage.ask(stream=True)
        assert (said.whole, said.body.count(b'"abort"'), b'"error"' in said.body) == (True, 1, False)


async def test_full_proxy_refuses_at_once_with_retry_after() -> None:
    async with (
        staged(a=hold, b=hold, max_in_flight=1, queue={"max_waiting": 0}) as stage,
        RawClient(stage.app.port) as first,
        RawClient(stage.app.port) as second,
    ):
        await take_both(stage, first, second)
        said = await stage.ask()
        assert (said.status, said.header("retry-after")) == (429, "1")


async def test_waiter_is_refused_when_its_wait_is_over() -> None:
    async with (
        staged(a=hold, b=hold, max_in_flight=1, queue={"max_wait_s": 0.05}) as stage,
        RawClient(stage.app.port) as first,
        RawClient(stage.app.port) as second,
    ):
        await take_both(stage, first, second)
        said = await stage.ask()
        assert (said.status, said.header("retry-after")) == (503, "1")


async def test_waiter_is_served_when_room_comes() -> None:
    gate = asyncio.Event()

    async def until_open(exchange: Exchange) -> None:
        await gate.wait()
        await either(exchange)

    async with (
        staged(a=until_open, b=until_open, max_in_flight=1) as stage,
        RawClient(stage.app.port) as first,
        RawClient(stage.app.port) as second,
        RawClient(stage.app.port) as third,
    ):
        await take_both(stage, first, second)
        await third.send(request(body=chat()))
        await until(lambda: stage.app.admission.waiting == 1, what="one request waiting")
        gate.set()
        assert (await third.answer()).status == 200

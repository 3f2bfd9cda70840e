"""What fails before commit is served by the other engine, once and within a budget (H6, H12, H14, H19)."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from fakes.engine import Exchange, content, either, plain
from fakes.raw import chat
from fakes.stage import staged
from fakes.until import until

from proxy.model import Outcome

Script = Callable[[Exchange], Awaitable[None]]
SLOW_PROBES = {"interval_s": 300}
STEADY = {"max_failures": 1000}


async def reset(exchange: Exchange) -> None:
    exchange.reset()


async def close(exchange: Exchange) -> None:
    exchange.writer.close()


async def fail(exchange: Exchange) -> None:
    await exchange.answer(b'{"object":"error","message":"boom","code":500}', "500 Internal Server Error", "x-tag: a")


async def garbage(exchange: Exchange) -> None:
    await exchange.send(b"\x16\x03\x01\x02\x00 this is no HTTP\r\n\r\n")
    await exchange.gone()


async def huge_head(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\nx-long: " + b"x" * 200_000 + b"\r\n\r\n")
    await exchange.gone()


async def half_head(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\ncontent-")
    exchange.writer.close()


async def wrong_length(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n")
    await exchange.gone()


async def empty_stream(exchange: Exchange) -> None:
    await exchange.stream_head()
    await exchange.end()


async def half_event(exchange: Exchange) -> None:
    await exchange.stream_head()
    await exchange.chunk(b'data: {"choices":[')
    exchange.writer.close()


async def failed_first_event(exchange: Exchange) -> None:
    await exchange.stream_head()
    await exchange.event({"error": {"message": "boom", "type": "InternalServerError", "code": 500}})
    await exchange.chunk(b"data: [DONE]\n\n")
    await exchange.end()


async def endless_error(exchange: Exchange) -> None:
    await exchange.head("500 Internal Server Error", "content-length: 100")
    await exchange.send(b"half")


async def endless_failure(exchange: Exchange) -> None:
    await exchange.stream_head()
    await exchange.event({"error": {"message": "boom", "type": "InternalServerError", "code": 500}})


async def reset_head_only(exchange: Exchange) -> None:
    await exchange.stream_head()
    exchange.reset()


FAULTS: list[Script] = [reset, close, fail, garbage, huge_head, half_head, wrong_length]
STREAM_FAULTS: list[Script] = [empty_stream, half_event, failed_first_event, reset_head_only]


def status(code: str, body: bytes = b"{}", *lines: str) -> Script:
    async def answer(exchange: Exchange) -> None:
        await exchange.answer(body, code, *lines)

    return answer


# ---------------------------------------------------------------- the other one serves


@pytest.mark.parametrize("fault", FAULTS)
async def test_other_engine_serves_a_plain_request_when_the_first_fails_it(fault: Script) -> None:
    async with staged(a=fault) as stage:
        said = await stage.ask()
        assert (said.status, said.header("x-crossover-backend"), said.whole) == (200, "baseline", True)


@pytest.mark.parametrize("fault", FAULTS + STREAM_FAULTS)
async def test_other_engine_serves_a_stream_when_the_first_fails_it(fault: Script) -> None:
    async with staged(a=fault) as stage:
        said = await stage.ask(stream=True)
        assert (said.status, said.body[-14:]) == (200, b"data: [DONE]\n\n")


@pytest.mark.parametrize("fault", FAULTS + STREAM_FAULTS)
async def test_each_engine_is_asked_once_when_the_first_fails(fault: Script) -> None:
    async with staged(a=fault) as stage:
        await stage.ask(stream=True)
        assert (len(stage.a.requests), len(stage.b.requests)) == (1, 1)


async def test_other_engine_serves_when_the_first_refuses_the_connection() -> None:
    async with staged(health=SLOW_PROBES) as stage:
        await stage.a.close()
        assert (await stage.ask()).header("x-crossover-backend") == "baseline"


async def test_facts_tell_two_attempts_after_a_failover() -> None:
    async with staged(a=fail) as stage:
        await stage.ask()
        assert (await stage.ended_one()).attempts == 2


@pytest.mark.parametrize(("fault", "told"), [(fail, 500), (reset, None), (failed_first_event, 200)])
async def test_what_failover_saved_is_counted_with_the_status_that_the_engine_gave(
    fault: Script, told: int | None
) -> None:
    async with staged(a=fault, health=SLOW_PROBES) as stage:
        await stage.ask(stream=True)
        facts = await stage.ended_one()
        assert (facts.failure, facts.first_failure_status) == (None, told)
        value = stage.app.metrics.registry.get_sample_value
        at = {"role": "speculative", "code": "backend_broken", "status": str(told or "none")}
        assert value("crossover_attempt_failures_total", at) == 1
        assert "crossover_failures_total{" not in stage.app.metrics.exposition().decode()


async def test_failure_on_both_tells_the_status_of_each() -> None:
    async with staged(a=fail, b=status("502 Bad Gateway"), health=SLOW_PROBES) as stage:
        await stage.ask()
        facts = await stage.ended_one()
        assert (facts.first_failure_status, facts.failure_status, facts.status) == (500, 502, 502)


async def test_client_is_told_that_it_was_a_failover() -> None:
    async with staged(a=fail) as stage:
        assert (await stage.ask()).header("x-crossover-reason") == "failover"


@pytest.mark.parametrize("fault", [garbage, huge_head, endless_error, endless_failure])
async def test_first_connection_is_closed_before_the_second_attempt_is_answered(
    fault: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.wire.kept.KEEP_WITHIN_S", 0.05)
    closed = asyncio.Event()

    async def failing(exchange: Exchange) -> None:
        try:
            await fault(exchange)
            await exchange.gone()
        finally:
            closed.set()

    async def second(exchange: Exchange) -> None:
        await until(closed.is_set, what="the end of the engine's connection")
        await either(exchange)

    async with staged(a=failing, b=second) as stage:
        assert (await stage.ask(stream=True)).status == 200, "the first engine's connection was open all along"


async def test_both_attempts_carry_the_same_request_id() -> None:
    async with staged(a=fail) as stage:
        said = await stage.ask("x-request-id: mine-1")
        seen = [stage.a.requests[0].header("x-request-id"), stage.b.requests[0].header("x-request-id")]
        assert [*seen, said.header("x-request-id")] == ["mine-1"] * 3


async def test_both_attempts_carry_the_same_body() -> None:
    async with staged(a=fail) as stage:
        await stage.ask()
        assert stage.a.requests[0].body == stage.b.requests[0].body == chat()


# ---------------------------------------------------------------- not more than that


async def test_retries_stop_when_the_budget_is_spent() -> None:
    async with staged(a=fail, retries={"max_ratio": 0.0, "reserve": 2}, circuit=STEADY) as stage:
        statuses = [(await stage.ask()).status for _ in range(4)]
        assert statuses == [200, 200, 500, 500]


async def test_refused_connections_cost_no_budget() -> None:
    async with staged(retries={"max_ratio": 0.0, "reserve": 0}, health=SLOW_PROBES) as stage:
        await stage.a.close()
        assert (await stage.ask()).status == 200


async def test_nothing_is_retried_after_commit() -> None:
    async def break_off(exchange: Exchange) -> None:
        await exchange.stream_head()
        for _ in range(3):
            await exchange.event(content("w"))
        exchange.reset()

    async with staged(a=break_off) as stage:
        await stage.ask(stream=True)
        assert not stage.b.requests, "a prompt whose answer had begun was sent to the other engine"


async def test_plain_answer_that_breaks_in_its_body_is_not_retried() -> None:
    async def half(exchange: Exchange) -> None:
        await exchange.head("200 OK", "content-type: application/json", "content-length: 100")
        await exchange.send(b'{"half":')
        exchange.writer.close()

    async with staged(a=half) as stage:
        said = await stage.ask()
        assert (said.body, said.whole, len(stage.b.requests)) == (b'{"half":', False, 0)


@pytest.mark.parametrize("code", ["400 Bad Request", "401 Unauthorized", "404 Not Found", "422 Unprocessable Entity"])
async def test_client_errors_are_not_retried(code: str) -> None:
    async with staged(a=status(code)) as stage:
        await stage.ask()
        assert not stage.b.requests


# ---------------------------------------------------------------- honest answers when both fail


@pytest.mark.parametrize(
    ("fault", "expected"), [(reset, 502), (garbage, 502), (empty_stream, 502)], ids=["resets", "garbage", "empty"]
)
async def test_client_gets_502_when_both_break(fault: Script, expected: int) -> None:
    async with staged(a=fault, b=fault) as stage:
        assert (await stage.ask(stream=True)).status == expected


async def test_client_gets_502_when_both_refuse_the_connection() -> None:
    async with staged(health=SLOW_PROBES) as stage:
        await stage.a.close()
        await stage.b.close()
        assert (await stage.ask()).status == 502


async def test_error_of_ours_has_the_openai_shape() -> None:
    async with staged(a=reset, b=reset) as stage:
        error = (await stage.ask()).json["error"]
        assert isinstance(error, dict)
        assert (set(error), error["type"], error["code"]) == (
            {"message", "type", "param", "code"},
            "upstream_error",
            "backend_broken",
        )


async def test_error_of_ours_has_the_anthropic_shape_on_messages() -> None:
    async with staged(a=reset, b=reset) as stage:
        said = (await stage.ask(target="/v1/messages")).json
        assert (said["type"], set(said)) == ("error", {"type", "error"})


async def test_error_of_ours_names_no_address() -> None:
    async with staged(health=SLOW_PROBES) as stage:
        ports = (str(stage.a.port).encode(), str(stage.b.port).encode())
        await stage.a.close()
        await stage.b.close()
        body = (await stage.ask()).body
        assert not any(port in body for port in (*ports, b"127.0.0.1")), "a client learned an engine's address"


async def test_engines_own_error_passes_when_both_fail() -> None:
    async with staged(a=fail, b=status("500 Internal Server Error", b"Internal Server Error")) as stage:
        said = await stage.ask()
        assert (said.status, said.body) == (500, b"Internal Server Error")


async def test_first_engines_error_passes_when_the_second_gives_none() -> None:
    async with staged(a=fail, b=reset) as stage:
        said = await stage.ask()
        assert (said.status, said.header("x-tag"), said.json["message"]) == (500, "a", "boom")


@pytest.mark.parametrize(
    "body", [b'{"object":"error","message":"too long","code":400}', b'{"detail":"x"}\n', b"", b"<html>no</html>"]
)
async def test_client_errors_pass_byte_for_byte(body: bytes) -> None:
    async with staged(a=status("400 Bad Request", body)) as stage:
        said = await stage.ask(stream=True)
        assert (said.status, said.body, said.header("content-type")) == (400, body, "application/json")


async def test_first_event_that_fails_on_both_passes_as_it_is() -> None:
    async with staged(a=failed_first_event, b=failed_first_event) as stage:
        said = await stage.ask(stream=True)
        assert (said.status, said.body.count(b'"error"'), said.whole) == (200, 1, True)


async def test_outcome_is_failed_when_the_first_event_fails_on_both() -> None:
    async with staged(a=failed_first_event, b=failed_first_event) as stage:
        await stage.ask(stream=True)
        assert (await stage.ended_one()).outcome is Outcome.FAILED_AFTER_COMMIT


# ---------------------------------------------------------------- a kept connection that has just been closed


class Stale:
    """Answers the first request and closes the kept connection when the second one comes on it."""

    def __init__(self) -> None:
        self.connections: set[int] = set()
        self.seen: list[int] = []

    async def __call__(self, exchange: Exchange) -> None:
        connection = id(exchange.writer)
        self.seen.append(connection)
        if connection in self.connections:
            exchange.writer.close()
            return
        self.connections.add(connection)
        await plain(exchange)


async def test_request_on_a_stale_connection_is_served() -> None:
    async with staged(a=Stale()) as stage:
        await stage.ask()
        said = await stage.ask()
        assert (said.status, said.header("x-crossover-backend")) == (200, "speculative")


async def test_replay_on_a_fresh_connection_counts_as_an_attempt() -> None:
    async with staged(a=Stale()) as stage:
        await stage.ask()
        await stage.ask()
        assert stage.ended[1].attempts == 2


async def test_stale_connection_is_not_held_against_the_engine() -> None:
    async with staged(a=Stale()) as stage:
        await stage.ask()
        await stage.ask()
        assert stage.circuit().failures == 0


async def test_replay_happens_once_and_then_the_other_engine_serves() -> None:
    async def always(exchange: Exchange) -> None:
        if len(stage.a.requests) == 1:
            await plain(exchange)
        else:
            exchange.writer.close()

    async with staged(a=always) as stage:
        await stage.ask()
        said = await stage.ask()
        assert (len(stage.a.requests), said.header("x-crossover-backend")) == (3, "baseline")

"""H6: one prompt is generated once, or twice at most: on the other engine, within a budget, the first one stopped."""

import asyncio
import contextlib

import pytest
from fakes.engine import Exchange, Script, either, plain
from fakes.failing import (
    CHAT,
    EITHER_ROLE,
    EVERY_FORM,
    PLAIN_CHAT,
    STEADY,
    STREAMING,
    UNPROBED,
    VERSION,
    Form,
    fail,
    hang,
    late_close,
    metric,
    pinned,
    reset,
    scripts,
)
from fakes.leaping import leaping, passed_s
from fakes.raw import RawClient
from fakes.stage import Stage, staged
from fakes.until import until

from proxy.model import Outcome, Role

NO_BUDGET = {"max_ratio": 0.0, "reserve": 0}
FAULT = pytest.mark.parametrize("fault", [late_close, fail, reset])
BUSY = b'{"error":{"message":"full","type":"overloaded_error","param":null,"code":503}}'


async def full(exchange: Exchange) -> None:
    await exchange.answer(BUSY, "503 Service Unavailable", "retry-after: 2")


def attempts(stage: Stage) -> tuple[int, int]:
    return len(stage.a.requests), len(stage.b.requests)


# ---------------------------------------------------------------- (a) after the answer has begun


@EVERY_FORM
@VERSION
@leaping
async def test_h6a_answer_that_broke_off_is_not_made_again(form: Form, version: str) -> None:
    async def break_off(exchange: Exchange) -> None:
        await form.begin(exchange)
        await asyncio.sleep(1.0)
        exchange.reset()

    async with staged(a=break_off, b=form.serve, health=UNPROBED) as stage:
        said = await form.ask(stage, version=version)
        assert attempts(stage) == (1, 0), "the prompt was run twice"
        for event in form.sample.events if form.stream else ():
            assert said.body.count(event) == 1, "text came twice, or not at all"
        assert form.sample.end not in said.body
        assert (await stage.ended_one()).outcome is Outcome.FAILED_AFTER_COMMIT


@EITHER_ROLE
@leaping
async def test_h6a_neither_engine_takes_over_the_others_broken_stream(role: Role) -> None:
    async def break_off(exchange: Exchange) -> None:
        await CHAT.begin(exchange)
        exchange.reset()

    async with staged(**scripts(role, break_off, either), routing=pinned(role), health=UNPROBED) as stage:
        await stage.ask(stream=True)
        assert sum(attempts(stage)) == 1
        await stage.ended_one()
        assert metric(stage, "retries_total") == 0


# ---------------------------------------------------------------- (b) no connection


@EVERY_FORM
@leaping
async def test_h6b_other_engine_serves_at_once_when_the_first_refuses(form: Form) -> None:
    async with staged(b=form.serve, health=UNPROBED, retries=NO_BUDGET) as stage:
        await stage.a.close()
        began_s = passed_s()
        assert form.is_good(await form.ask(stage))
        assert passed_s() - began_s < 0.1, "something was waited for"
        await stage.a.listen()


@EITHER_ROLE
@STREAMING
@leaping
async def test_h6b_either_engine_serves_when_the_other_refuses(role: Role, stream: bool) -> None:
    async with staged(routing=pinned(role), health=UNPROBED, retries=NO_BUDGET) as stage:
        gone = stage.a if role is Role.SPECULATIVE else stage.b
        await gone.close()
        said = await stage.ask(stream=stream)
        assert (said.status, said.header("x-crossover-backend")) == (200, role.other.value)
        await gone.listen()


@contextlib.asynccontextmanager
async def other_is_full(stage: Stage, gate: asyncio.Event):  # type: ignore[no-untyped-def]
    """Have the baseline at its limit of one, by a request that was sent there first."""
    async with RawClient(stage.app.port) as holder:
        await holder.send(PLAIN_CHAT.request("x-crossover-backend: baseline"))
        await until(lambda: stage.b.open == 1, what="the other engine being taken")
        yield
        gate.set()
        assert (await holder.answer()).status == 200


@pytest.mark.parametrize("trouble", ["refused", "busy"])
@STREAMING
@leaping
async def test_h6b_request_waits_for_the_other_engine_when_that_is_full(trouble: str, stream: bool) -> None:
    """No work was begun, so it is as if it had just come: it queues, and is not turned away."""
    gate = asyncio.Event()

    async def gated(exchange: Exchange) -> None:
        await gate.wait()
        await either(exchange)

    form = CHAT if stream else PLAIN_CHAT
    async with staged(a=full, b=gated, max_in_flight=1, routing={"allow_header": True}, health=UNPROBED) as stage:
        if trouble == "refused":
            await stage.a.close()
        async with RawClient(stage.app.port) as client:
            async with other_is_full(stage, gate):
                await client.send(form.request("x-request-id: waits"))
                await until(lambda: stage.app.admission.waiting == 1, what="the request waiting for room")
            said = await client.answer()
            assert (said.status, said.header("x-crossover-backend")) == (200, "baseline")
        if trouble == "refused":
            await stage.a.listen()


# ---------------------------------------------------------------- (c) and (d) before the answer has begun


@FAULT
@EVERY_FORM
@leaping
async def test_h6cd_other_engine_is_asked_once(fault: Script, form: Form) -> None:
    async with staged(a=fault, b=form.serve, health=UNPROBED) as stage:
        assert form.is_good(await form.ask(stage))
        assert attempts(stage) == (1, 1)


@FAULT
@EITHER_ROLE
@STREAMING
@leaping
async def test_h6cd_there_is_no_third_attempt_when_the_other_engine_fails_too(
    fault: Script, role: Role, stream: bool
) -> None:
    async with staged(a=fault, b=fault, routing=pinned(role), health=UNPROBED) as stage:
        said = await stage.ask(stream=stream)
        assert said.status in (500, 502) and attempts(stage) == (1, 1)
        assert (await stage.ended_one()).attempts == 2
        # Also where nothing came of them: each engine worked once.
        for each in Role:
            assert metric(stage, "attempts_total", role=each.value) == 1


@EITHER_ROLE
@STREAMING
@leaping
async def test_h6cd_kept_connections_of_both_engines_that_close_at_once_cost_one_replay(
    role: Role, stream: bool
) -> None:
    """A stale connection is replayed on the first engine; the second gets a new one, and the prompt once."""

    async def until_asked_by_id(exchange: Exchange) -> None:
        await (reset if exchange.request.header("x-request-id") == "mine" else plain)(exchange)

    routing = {**pinned(role), "allow_header": True}
    async with staged(a=until_asked_by_id, b=until_asked_by_id, routing=routing, health=UNPROBED) as stage:
        for each in Role:
            said = await stage.ask(f"x-crossover-backend: {each}")
            assert (said.status, said.header("x-crossover-backend")) == (200, each.value)
        assert (await stage.ask("x-request-id: mine", stream=stream)).status == 502
        sent = [
            [one.header("x-crossover-attempt") for one in engine.requests if one.header("x-request-id") == "mine"]
            for engine in (stage.a, stage.b)
        ]
        assert sent == ([["1", "1"], ["2"]] if role is Role.SPECULATIVE else [["2"], ["1", "1"]])


@STREAMING
@leaping
async def test_h6e_prompt_that_is_sent_again_over_a_new_connection_is_counted_like_every_attempt(stream: bool) -> None:
    async def closes_once(exchange: Exchange) -> None:
        await (reset if len(stage.a.requests) == 2 else either)(exchange)

    async with staged(a=closes_once, health=UNPROBED) as stage:
        for _ in range(2):
            assert (await stage.ask(stream=stream)).header("x-crossover-backend") == "speculative"
        await until(lambda: len(stage.ended) == 2, what="the end of both")
        assert attempts(stage) == (3, 0)
        assert metric(stage, "attempts_total", role="speculative") == metric(stage, "attempts_total") == 3
        assert metric(stage, "retries_total", role="speculative") == metric(stage, "retries_total") == 1


@leaping
async def test_h6c_prompt_on_a_kept_connection_that_closes_late_is_not_sent_there_again() -> None:
    """Closed at once it may have been stale; closed after two seconds the engine had the prompt all along."""

    async def first_good(exchange: Exchange) -> None:
        await (plain if len(stage.a.requests) == 1 else late_close)(exchange)

    async with staged(a=first_good, health=UNPROBED) as stage:
        await stage.ask()
        assert (await stage.ask()).header("x-crossover-backend") == "baseline"
        assert attempts(stage) == (2, 1), "the engine got the prompt twice"


async def half_failure(exchange: Exchange) -> None:
    await exchange.head("500 Internal Server Error", "content-type: application/json", "content-length: 100")
    await exchange.send(b'{"error":')


@pytest.mark.parametrize("fault", [late_close, half_failure, reset, hang])
@STREAMING
@leaping
async def test_h6cd_first_attempt_is_over_when_the_second_begins(fault: Script, stream: bool) -> None:
    over = asyncio.Event()

    async def failing(exchange: Exchange) -> None:
        try:
            await fault(exchange)
            await exchange.gone()
        finally:
            over.set()

    async def second(exchange: Exchange) -> None:
        for _ in range(20):  # turns of the loop, in which the closing reaches the first engine
            await asyncio.sleep(0)
        assert over.is_set(), "both engines were at work on one prompt"
        await either(exchange)

    async with staged(a=failing, b=second, health=UNPROBED) as stage:
        assert (await stage.ask(stream=stream)).status == 200


@pytest.mark.parametrize("fault", [fail, reset, late_close, hang])
@pytest.mark.parametrize("at_once", [1, 20])
@leaping
async def test_h6cd_retries_are_a_tenth_of_the_requests_in_an_outage(fault: Script, at_once: int) -> None:
    count, reserve = 200, 1
    async with staged(
        a=fault,
        routing=pinned(Role.SPECULATIVE),
        circuit=STEADY,
        retries={"max_ratio": 0.1, "reserve": reserve},
        timeouts={"first_byte_s": 5.0},
        health=UNPROBED,
    ) as stage:
        for _ in range(count // at_once):
            await asyncio.gather(*(stage.ask() for _ in range(at_once)))
        await until(lambda: len(stage.ended) == count, what="the end of every request")
        assert len(stage.a.requests) == count
        # Those that came at once found the reserve spent, and what is not saved up is lost.
        least = count // 10 if at_once == 1 else count // at_once
        assert least <= len(stage.b.requests) <= count // 10 + reserve
        assert metric(stage, "retries_total", role="baseline") == len(stage.b.requests)


# ---------------------------------------------------------------- (e) told apart, and told as one


@pytest.mark.parametrize("fault", [fail, reset, late_close, hang, full])
@STREAMING
@leaping
async def test_h6e_every_attempt_carries_the_clients_id(fault: Script, stream: bool) -> None:
    async with staged(a=fault, health=UNPROBED) as stage:
        said = await stage.ask("X-Request-Id: mine-1", stream=stream)
        seen = [each.header("x-request-id") for each in (*stage.a.requests, *stage.b.requests)]
        assert [*seen, said.header("x-request-id")] == ["mine-1"] * 3


@leaping
async def test_h6e_every_attempt_carries_the_same_id_when_the_client_gave_none() -> None:
    async with staged(a=fail, health=UNPROBED) as stage:
        said = await stage.ask()
        seen = {each.header("x-request-id") for each in (*stage.a.requests, *stage.b.requests)}
        assert seen == {said.header("x-request-id")} and None not in seen


@pytest.mark.parametrize("fault", [fail, reset, late_close, full])
@EITHER_ROLE
@leaping
async def test_h6e_attempts_are_numbered(fault: Script, role: Role) -> None:
    async with staged(**scripts(role, fault, either), routing=pinned(role), health=UNPROBED) as stage:
        await stage.ask()
        first, second = (stage.a, stage.b) if role is Role.SPECULATIVE else (stage.b, stage.a)
        seen = [engine.requests[0].header("x-crossover-attempt") for engine in (first, second)]
        assert seen == ["1", "2"]


@EVERY_FORM
@leaping
async def test_h6e_attempt_that_follows_a_refused_connection_is_the_second(form: Form) -> None:
    async with staged(b=form.serve, health=UNPROBED) as stage:
        await stage.a.close()
        await form.ask(stage)
        assert stage.b.requests[0].header("x-crossover-attempt") == "2"
        await stage.a.listen()


@leaping
async def test_h6e_number_of_the_attempt_is_ours_and_not_the_clients() -> None:
    async with staged(health=UNPROBED) as stage:
        await stage.ask("X-Crossover-Attempt: 7")
        numbers = [value for name, value in stage.a.requests[0].headers if name.lower() == "x-crossover-attempt"]
        assert numbers == ["1"]


@pytest.mark.parametrize("fault", [fail, reset, late_close])
@leaping
async def test_h6e_every_attempt_is_counted(fault: Script) -> None:
    async with staged(a=fault, health=UNPROBED) as stage:
        await stage.ask()
        await stage.ended_one()
        assert metric(stage, "attempts_total", role="speculative") == 1
        assert metric(stage, "attempts_total", role="baseline") == 1
        assert metric(stage, "retries_total", role="baseline") == metric(stage, "retries_total") == 1

"""Each wait has a limit of its own and its own error; an answer that makes progress has none (H15, H16, H20)."""

import asyncio

import pytest
from fakes.engine import Exchange, FakeEngine, content, either
from fakes.failing import black_hole
from fakes.leaping import leaping, passed_s
from fakes.proxy import running, settings
from fakes.raw import RawClient, ask, chat, request
from fakes.stage import staged
from fakes.until import until

from proxy.model import Outcome

PATIENT = {"interval_s": 300}


async def never(exchange: Exchange) -> None:
    await exchange.gone()


async def head_only(exchange: Exchange) -> None:
    await exchange.stream_head()
    await exchange.gone()


# ---------------------------------------------------------------- connect


@leaping
async def test_other_engine_serves_when_the_first_takes_no_connection() -> None:
    with black_hole() as hole:
        async with (
            FakeEngine(role="baseline") as b,
            running(settings(hole, b.url, timeouts={"connect_s": 0.1}, health=PATIENT)) as app,
        ):
            said = await ask(app.port, request(body=chat()))
            assert (said.status, said.header("x-crossover-backend")) == (200, "baseline")


@leaping
async def test_client_gets_502_when_no_engine_takes_a_connection() -> None:
    with black_hole() as hole, black_hole() as other:
        async with running(settings(hole, other, timeouts={"connect_s": 0.1}, health=PATIENT)) as app:
            assert (await ask(app.port, request(body=chat()))).status == 502


# ---------------------------------------------------------------- first byte


@leaping
@pytest.mark.parametrize("stream_it", [True, False], ids=["stream", "plain"])
async def test_other_engine_serves_when_the_first_never_answers(stream_it: bool) -> None:
    async with staged(a=never, timeouts={"connect_s": 0.1, "first_byte_s": 0.1}) as stage:
        said = await stage.ask(stream=stream_it)
        assert (said.status, said.header("x-crossover-backend")) == (200, "baseline")


@leaping
async def test_other_engine_serves_when_the_first_sends_no_event() -> None:
    async with staged(a=head_only, timeouts={"connect_s": 0.1, "first_byte_s": 0.1}) as stage:
        assert (await stage.ask(stream=True)).header("x-crossover-backend") == "baseline"


@leaping
async def test_client_gets_504_when_neither_engine_answers() -> None:
    async with staged(a=never, b=never, timeouts={"connect_s": 0.05, "first_byte_s": 0.05}) as stage:
        assert (await stage.ask()).status == 504


@leaping
async def test_error_names_the_limit_that_was_passed() -> None:
    async with staged(a=never, b=never, timeouts={"connect_s": 0.05, "first_byte_s": 0.05}) as stage:
        assert "timeouts.first_byte_s" in str((await stage.ask()).json["error"])


@leaping
async def test_engine_socket_closes_when_its_first_byte_is_late() -> None:
    closed = asyncio.Event()

    async def late(exchange: Exchange) -> None:
        await exchange.gone()
        closed.set()

    async with staged(a=late, timeouts={"connect_s": 0.05, "first_byte_s": 0.05}) as stage:
        await stage.ask()
        await until(closed.is_set, what="the end of the engine's connection")


@leaping
async def test_sequence_lingers_when_its_engine_was_given_up_unheard() -> None:
    async with staged(a=never, timeouts={"connect_s": 0.05, "first_byte_s": 0.05, "linger_s": 0.5}) as stage:
        await stage.ask()
        assert stage.app.desk.snapshot().speculative.in_flight == 1


@leaping
async def test_late_first_byte_is_held_against_the_engine_when_the_other_answers() -> None:
    async with staged(a=never, timeouts={"connect_s": 0.05, "first_byte_s": 0.05}) as stage:
        await stage.ask()
        assert stage.circuit().failures == 1


@leaping
async def test_requests_to_the_other_engine_are_not_slowed_by_a_hung_one() -> None:
    async with staged(a=never, routing={"leave_at": 1, "enter_at": 0}) as stage, RawClient(stage.app.port) as stuck:
        await stuck.send(request(body=chat()))
        await until(lambda: stage.in_flight == 1, what="a request being stuck")
        began_s = passed_s()
        said = [await stage.ask() for _ in range(20)]
        assert {each.status for each in said} == {200}
        assert passed_s() - began_s < 0.1


@leaping
async def test_engine_that_accepts_and_never_reads_is_given_up() -> None:
    """Its receive window is full before the request is sent whole."""
    accepted: list[asyncio.StreamWriter] = []

    async def deaf(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        accepted.append(writer)

    server = await asyncio.start_server(deaf, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    timeouts = {"connect_s": 0.2, "first_byte_s": 0.2}
    health = {"interval_s": 300, "timeout_s": 0.1}
    async with (
        server,
        FakeEngine(role="baseline") as b,
        running(settings(f"http://127.0.0.1:{address[1]}", b.url, timeouts=timeouts, health=health)) as app,
    ):
        app.desk.backend(app.desk.backends[0].role).health = app.desk.backends[1].health
        said = await ask(app.port, request(body=chat(padding="x" * (16 << 20))))
        assert (said.status, said.header("x-crossover-reason")) == (200, "failover")
        for writer in accepted:
            writer.transport.abort()


# ---------------------------------------------------------------- stall


@leaping
async def test_answer_that_makes_progress_has_no_limit() -> None:
    async def slow(exchange: Exchange) -> None:
        await exchange.stream_head()
        for number in range(8):
            await exchange.event(content(f"w{number}"))
            await asyncio.sleep(0.05)  # sleeps: progress, slower than the limit in all
        await exchange.event(content("", finish_reason="stop"))
        await exchange.chunk(b"data: [DONE]\n\n")
        await exchange.end()

    async with staged(a=slow, timeouts={"stall_s": 0.25, "connect_s": 0.25, "first_byte_s": 0.25}) as stage:
        assert (await stage.ask(stream=True)).whole


@leaping
async def test_slow_client_is_not_taken_for_a_stalled_engine() -> None:
    async def much(exchange: Exchange) -> None:
        await exchange.stream_head()
        for _ in range(512):
            await exchange.event(content("x" * 32768))
        await exchange.event(content("", finish_reason="stop"))
        await exchange.chunk(b"data: [DONE]\n\n")
        await exchange.end()

    async with staged(a=much, timeouts={"stall_s": 0.1}) as stage, RawClient(stage.app.port) as client:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await client.send(request(body=chat(stream=True)))
        await asyncio.sleep(0.3)  # sleeps: longer than the limit that must not apply
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        assert (await client.answer()).whole


@leaping
async def test_stall_closes_the_engines_socket() -> None:
    closed = asyncio.Event()

    async def stall(exchange: Exchange) -> None:
        await exchange.stream_head()
        await exchange.event(content("w0"))
        await exchange.gone()
        closed.set()

    async with staged(a=stall, timeouts={"stall_s": 0.05}) as stage:
        await stage.ask(stream=True)
        await until(closed.is_set, what="the end of the engine's connection")


@leaping
async def test_outcome_of_a_stall_has_its_own_word() -> None:
    async def stall(exchange: Exchange) -> None:
        await exchange.stream_head()
        await exchange.event(content("w0"))
        await exchange.gone()

    async with staged(a=stall, timeouts={"stall_s": 0.05}) as stage:
        await stage.ask(stream=True)
        ended = await stage.ended_one()
        assert (ended.outcome, ended.failure) == (Outcome.FAILED_AFTER_COMMIT, "stall_timeout")


# ---------------------------------------------------------------- the client's body


async def test_body_that_pauses_is_answered_408() -> None:
    async with staged(listen={"body_timeout_s": 0.05}) as stage, RawClient(stage.app.port) as client:
        await client.send(request(body=chat())[:-5])
        assert (await client.head()).status == 408


async def test_connection_closes_after_a_body_that_paused() -> None:
    async with staged(listen={"body_timeout_s": 0.05}) as stage, RawClient(stage.app.port) as client:
        await client.send(request(body=chat())[:-5])
        said = await client.answer()
        assert said.header("connection") == "close"


@leaping
async def test_body_that_trickles_is_served() -> None:
    async with (
        staged(listen={"body_timeout_s": 0.2, "min_body_bytes_per_s": 0}) as stage,
        RawClient(stage.app.port) as client,
    ):
        whole = request(body=chat())
        for start in range(0, len(whole), 20):
            await client.send(whole[start : start + 20])
            await asyncio.sleep(0.1)  # sleeps: progress, slower than the limit in all
        assert (await client.answer()).status == 200


async def test_engines_are_not_blamed_for_a_client_that_pauses() -> None:
    async with staged(a=either, listen={"body_timeout_s": 0.05}) as stage, RawClient(stage.app.port) as client:
        before = stage.circuit()
        await client.send(request(body=chat())[:-5])
        await client.head()
        assert stage.circuit() == before

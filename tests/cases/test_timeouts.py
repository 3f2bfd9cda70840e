"""H20: long generations that go on are never cut; each wait has its own limit, its own error and its own metric."""

import asyncio
from pathlib import Path

import orjson
import pytest
import yaml
from fakes.engine import Exchange, FakeEngine, Script, content
from fakes.failing import CHAT, EVERY_FORM, PLAIN_ANSWER, PLAIN_CHAT, STREAMING, UNPROBED, Form, hang, metric
from fakes.leaping import leaping, passed_s
from fakes.proxy import running, settings
from fakes.raw import RawClient, ask, chat, request
from fakes.stage import Stage, staged

from proxy.config import Settings
from proxy.model import Outcome, Role

ROOT = Path(__file__).parents[2]
CONNECT_S, FIRST_BYTE_S, STALL_S = 2.0, 600.0, 300.0
# A limit has been kept when what passed is not below it and not a tenth above it.
SLACK = 1.1


def defaults() -> Settings:
    urls = {role.value: {"url": f"http://127.0.0.1:{port}"} for port, role in enumerate(Role, 1)}
    return Settings.model_validate({"backends": urls})


def within(limit_s: float, waited_s: float) -> bool:
    return limit_s * 0.99 <= waited_s <= limit_s * SLACK


# ---------------------------------------------------------------- the limits themselves


def test_h20_defaults_are_the_ones_that_long_generations_need() -> None:
    """Also in the file that people begin with."""
    written = yaml.safe_load((ROOT / "config" / "crossover.yaml").read_text(encoding="utf-8"))["timeouts"]
    for timeouts in (defaults().timeouts.model_dump(), written):
        assert (timeouts["connect_s"], timeouts["stall_s"]) == (CONNECT_S, STALL_S)
        assert timeouts["first_byte_s"] >= FIRST_BYTE_S


def test_h20_nothing_limits_the_whole_of_an_answer() -> None:
    waits = {"connect_s", "first_byte_s", "stall_s", "drain_s", "settle_s", "linger_s"}
    assert set(type(defaults().timeouts).model_fields) <= waits, "a limit that this case knows nothing of"


# ---------------------------------------------------------------- (a) to (c): what makes progress


@leaping
async def test_h20a_stream_of_a_token_a_second_runs_for_twenty_minutes() -> None:
    async def patient(exchange: Exchange) -> None:
        await exchange.stream_head()
        for number in range(1200):
            await exchange.event(content(f"w{number}"))
            await asyncio.sleep(1.0)
        await exchange.event(content("", finish_reason="stop"))
        await exchange.chunk(b"data: [DONE]\n\n")
        await exchange.end()

    async with staged(a=patient, health=UNPROBED) as stage:
        began_s = passed_s()
        said = await stage.ask(stream=True)
        assert (said.whole, said.body.count(b'"w')) == (True, 1200)
        assert passed_s() - began_s >= 1190


@leaping
async def test_h20a_plain_answer_that_trickles_for_twenty_minutes_arrives_whole() -> None:
    async def patient(exchange: Exchange) -> None:
        await exchange.head("200 OK", "content-type: application/json", "content-length: 120")
        for _ in range(12):
            await exchange.send(b" " * 10)
            await asyncio.sleep(100.0)

    async with staged(a=patient, health=UNPROBED) as stage:
        said = await stage.ask()
        assert (len(said.body), said.whole) == (120, True)


@EVERY_FORM
@leaping
async def test_h20bc_answer_that_begins_late_arrives_from_the_engine_that_worked_on_it(form: Form) -> None:
    async def slow(exchange: Exchange) -> None:
        await asyncio.sleep(240.0 if form.stream else 400.0)
        await form.serve(exchange)

    async with staged(a=slow, health=UNPROBED) as stage:
        said = await form.ask(stage)
        assert form.is_good(said) and not stage.b.requests


@STREAMING
@leaping
async def test_h20bc_answer_on_a_connection_that_was_used_before_has_as_long(stream: bool) -> None:
    """What closes idle connections does not take one for idle on which an answer is waited for."""
    form = CHAT if stream else PLAIN_CHAT

    async def slow(exchange: Exchange) -> None:
        if len(stage.a.requests) > 1:
            await asyncio.sleep(400.0)
        await form.serve(exchange)

    async with staged(a=slow, health=UNPROBED) as stage, RawClient(stage.app.port) as client:
        for _ in range(2):
            await client.send(form.request())
            assert form.is_good(await client.answer())


@leaping
async def test_h20b_head_that_comes_at_once_does_not_shorten_the_wait_for_the_first_token() -> None:
    """Engines send the head of a stream before the prefill: the silence after it is the first byte's still."""

    async def slow(exchange: Exchange) -> None:
        await exchange.stream_head()
        await asyncio.sleep(STALL_S + 200)
        await exchange.event(content("w", finish_reason="stop"))
        await exchange.end()

    async with staged(a=slow, health=UNPROBED) as stage:
        assert (await stage.ask(stream=True)).whole


async def head_of_plain(exchange: Exchange) -> None:
    await exchange.head("200 OK", "content-type: application/json", f"content-length: {len(PLAIN_ANSWER)}")


async def head_of_compressed(exchange: Exchange) -> None:
    await exchange.head(
        "200 OK", "content-type: text/event-stream", "content-encoding: gzip", f"content-length: {len(PLAIN_ANSWER)}"
    )


HEADS = pytest.mark.parametrize("begin", [head_of_plain, head_of_compressed])


@HEADS
@leaping
async def test_h20b_body_that_begins_long_after_its_head_arrives(begin: Script) -> None:
    async def slow(exchange: Exchange) -> None:
        await begin(exchange)
        await asyncio.sleep(STALL_S + 200)
        await exchange.send(PLAIN_ANSWER)

    async with staged(a=slow, health=UNPROBED) as stage:
        said = await stage.ask()
        assert (said.body, said.whole) == (PLAIN_ANSWER, True)


@HEADS
@leaping
async def test_h20b_body_that_never_begins_ends_at_the_limit_of_the_first_byte(begin: Script) -> None:
    async def silent(exchange: Exchange) -> None:
        await begin(exchange)
        await exchange.gone()

    async with staged(a=silent, health=UNPROBED) as stage:
        began_s = passed_s()
        said = await stage.ask()
        assert not said.whole and within(FIRST_BYTE_S, passed_s() - began_s)


@leaping
async def test_h20b_comments_alone_are_no_first_token_and_end_at_the_limit_of_the_first_byte() -> None:
    async def pinging(exchange: Exchange) -> None:
        await exchange.stream_head()
        await exchange.chunk(b": ping\n\n")
        await exchange.gone()

    async with staged(a=pinging, health=UNPROBED) as stage:
        began_s = passed_s()
        said = await stage.ask(stream=True)
        assert not said.whole and within(FIRST_BYTE_S, passed_s() - began_s)


# ---------------------------------------------------------------- (d) silence in the middle


@EVERY_FORM
@leaping
async def test_h20d_answer_that_falls_silent_ends_at_the_limit_between_bytes(form: Form) -> None:
    async def fall_silent(exchange: Exchange) -> None:
        await form.begin(exchange)
        await exchange.gone()

    async with staged(a=fall_silent, health=UNPROBED) as stage:
        began_s = passed_s()
        said = await form.ask(stage)
        assert not said.whole and within(STALL_S, passed_s() - began_s)
        ended = await stage.ended_one()
        assert (ended.outcome, ended.failure) == (Outcome.FAILED_AFTER_COMMIT, "stall_timeout")
        assert not stage.b.requests, "an answer that had begun was made again elsewhere"


@leaping
async def test_h20d_stream_that_falls_silent_says_which_limit_it_was() -> None:
    async def fall_silent(exchange: Exchange) -> None:
        await exchange.stream_head()
        for number in range(10):
            await exchange.event(content(f"w{number}"))
        await exchange.gone()

    async with staged(a=fall_silent, health=UNPROBED) as stage:
        body = (await stage.ask(stream=True)).body
        assert body.count(b'"w') == 10
        error = orjson.loads(body.split(b"data: ")[-1])["error"]
        assert error["type"] == "timeout_error" and "timeouts.stall_s" in error["message"]


@STREAMING
@leaping
async def test_h20d_silence_is_counted_under_its_own_code(stream: bool) -> None:
    form = CHAT if stream else PLAIN_CHAT

    async def fall_silent(exchange: Exchange) -> None:
        await form.begin(exchange)
        await exchange.gone()

    async with staged(a=fall_silent, health=UNPROBED) as stage:
        await form.ask(stage)
        await stage.ended_one()
        assert metric(stage, "failures_total", role="speculative", code="stall_timeout") == 1


# ---------------------------------------------------------------- (e) no answer at all


async def asked_after(stage: Stage, stream: bool) -> float:
    began_s = passed_s()
    await stage.ask(stream=stream)
    return passed_s() - began_s


@STREAMING
@leaping
async def test_h20e_engine_that_never_answers_is_given_up_at_the_limit_of_the_first_byte(stream: bool) -> None:
    async with staged(a=hang, health=UNPROBED) as stage:
        began_s = passed_s()
        said = await stage.ask(stream=stream)
        assert said.header("x-crossover-reason") == "failover" and within(FIRST_BYTE_S, passed_s() - began_s)


@STREAMING
@leaping
async def test_h20e_client_learns_by_504_which_limit_it_was_when_neither_answers(stream: bool) -> None:
    async with staged(a=hang, b=hang, health=UNPROBED) as stage:
        said = await stage.ask(stream=stream)
        error = said.json["error"]
        assert isinstance(error, dict)
        assert (said.status, error["code"], error["type"]) == (504, "first_byte_timeout", "timeout_error")
        assert "timeouts.first_byte_s" in error["message"]
        await stage.ended_one()
        assert metric(stage, "failures_total", role="baseline", code="first_byte_timeout") == 1


class Deaf(FakeEngine):
    """Takes connections and never reads from one."""

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        try:
            await asyncio.Event().wait()
        finally:
            self._connections.discard(task)
            writer.transport.abort()


@pytest.mark.parametrize("size", [1, 16 << 20], ids=["small", "larger_than_its_window"])
@leaping
async def test_h20e_engine_that_never_reads_is_given_up_at_the_limit_of_the_first_byte(size: int) -> None:
    async with Deaf() as a, FakeEngine(role="baseline") as b, running(settings(a.url, b.url, health=UNPROBED)) as app:
        speculative, baseline = app.desk.backends
        speculative.health = baseline.health
        began_s = passed_s()
        said = await ask(app.port, request(body=chat(padding="x" * size)))
        assert (said.status, said.header("x-crossover-reason")) == (200, "failover")
        assert within(FIRST_BYTE_S, passed_s() - began_s)


@pytest.mark.parametrize("first_byte_s", [0.5, 30.0])
@leaping
async def test_h20_limit_that_is_configured_is_the_one_that_holds(first_byte_s: float) -> None:
    async with staged(a=hang, health=UNPROBED, timeouts={"connect_s": 0.5, "first_byte_s": first_byte_s}) as stage:
        waited_s = await asked_after(stage, stream=True)
        assert first_byte_s * 0.9 <= waited_s <= first_byte_s * SLACK + 1.0


@leaping
async def test_h20_engine_is_given_up_once_for_each_limit_and_not_blamed_for_a_client_that_waits() -> None:
    """A client that takes its answer slowly is on its own time, not on the engine's."""

    async def much(exchange: Exchange) -> None:
        await exchange.stream_head()
        for _ in range(256):
            await exchange.event(content("x" * 32768))
        await exchange.event(content("", finish_reason="stop"))
        await exchange.end()

    async with (
        staged(a=much, health=UNPROBED, listen={"unread_timeout_s": 3600}) as stage,
        RawClient(stage.app.port) as client,
    ):
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await client.send(CHAT.request())
        await asyncio.sleep(STALL_S * 3)
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        assert (await client.answer()).whole
        assert stage.circuit(Role.SPECULATIVE).failures == 0

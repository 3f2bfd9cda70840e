"""A broken stream never looks finished, is told in its dialect, and is held against its engine (H5)."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import openai
import orjson
import pytest
from fakes.dialects import SAMPLES, Sample
from fakes.ears import listen
from fakes.engine import Exchange, content
from fakes.leaping import leaping_where
from fakes.proxy import url
from fakes.raw import RawClient, chat, request
from fakes.sending import sends
from fakes.stage import Stage, staged
from fakes.until import until
from openai import AsyncOpenAI

from proxy.model import Dialect, Outcome, Role

DIALECT = pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.dialect.value)
ROLE = pytest.mark.parametrize("role", list(Role), ids=lambda role: role.value)
EVENTS = 5
# An engine that falls silent does so on a loop that leaps; to all others it is far away.
IDLE_S = 5.0


async def closes(exchange: Exchange) -> None:
    exchange.writer.close()


async def resets(exchange: Exchange) -> None:
    exchange.reset()


async def falls_silent(exchange: Exchange) -> None:
    await exchange.gone()


async def ends_properly(exchange: Exchange) -> None:
    await exchange.end()


@dataclass(frozen=True)
class Death:
    """How an engine ends its stream, and the word by which it is counted."""

    dies: Callable[[Exchange], Awaitable[None]]
    code: str


DEATHS = (
    Death(closes, "backend_broken"),
    Death(resets, "backend_broken"),
    Death(falls_silent, "stall_timeout"),
    Death(ends_properly, "stream_cut"),
)
ON_ITS_LOOP = leaping_where(lambda death, **_: death.dies is falls_silent)
DEATH = pytest.mark.parametrize("death", DEATHS, ids=lambda death: death.dies.__name__)


def five(sample: Sample) -> list[bytes]:
    return [sample.events[number % len(sample.events)] for number in range(EVENTS)]


def dying(
    death: Death, *events: bytes, content_type: str, seen: asyncio.Event | None = None
) -> Callable[..., Awaitable[None]]:
    """Sends the events, waits until the client has them, and dies."""

    async def die(exchange: Exchange) -> None:
        await exchange.stream_head(content_type)
        for event in events:
            await exchange.chunk(event)
        if seen is not None:
            await seen.wait()
        await death.dies(exchange)

    return die


@dataclass
class Broken:
    """What the client had after the five events, and what the proxy counted."""

    begun: bytes = b""
    rest: bytes = b""
    whole: bool = True
    outcome: Outcome | None = None
    failure: str | None = None
    counts: dict[str, float | None] = field(default_factory=dict)
    failures: int = 0
    asked: tuple[int, int] = (0, 0)


async def broken(sample: Sample, death: Death, role: Role = Role.SPECULATIVE, *, half: bytes = b"") -> Broken:
    """The five events, and `half` another one, which the client need not get."""
    seen, found = asyncio.Event(), Broken()
    events = five(sample)
    die = dying(death, *events[:-1], events[-1] + half, content_type=sample.content_type, seen=seen)
    sections = {"timeouts": {"stall_s": IDLE_S}, "routing": {"policy": "pinned", "pin": role.value}}
    async with staged(a=die, b=die, **sections) as stage, RawClient(stage.app.port) as client:
        await client.send(request(sample.target, sample.body))
        await client.head()
        while len(found.begun) < len(b"".join(events)):
            found.begun += await client.chunk() or b""
        seen.set()
        while piece := await client.chunk():
            found.rest += piece
        found.whole = piece == b""
        ended = await stage.ended_one()
        found.outcome, found.failure = ended.outcome, ended.failure
        found.counts = counts_of(stage, role, death.code)
        found.failures = stage.circuit(role).failures
        found.asked = (len(stage.a.requests), len(stage.b.requests))
    return found


def counts_of(stage: Stage, role: Role, code: str) -> dict[str, float | None]:
    """What the operators' metrics say of an engine's broken streams."""
    value = stage.app.metrics.registry.get_sample_value
    outcome = {"role": role.value, "outcome": "failed_after_commit", "status_class": "2xx"}
    return {
        "outcome": value("crossover_requests_total", outcome),
        "failure": value("crossover_failures_total", {"role": role.value, "code": code}),
    }


# ---------------------------------------------------------------- what the client sees


@DIALECT
@DEATH
@ON_ITS_LOOP
async def test_h5_five_events_pass_and_one_error_event_follows(sample: Sample, death: Death) -> None:
    """For a proper end without finish too: nothing says that such an answer is whole (decision 4)."""
    found = await broken(sample, death)
    assert found.begun == b"".join(five(sample))
    assert told_error(sample, found.rest)["message"]


@DIALECT
@DEATH
@ON_ITS_LOOP
async def test_h5_error_event_does_not_stand_inside_the_half_event_in_which_the_stream_broke(
    sample: Sample, death: Death
) -> None:
    """The half of it comes with the end of the fifth; behind it the error would be a piece of its text."""
    found = await broken(sample, death, half=sample.events[1][:-9])
    assert found.begun == b"".join(five(sample))
    assert told_error(sample, found.rest)["message"]


def told_error(sample: Sample, rest: bytes) -> dict[str, str]:
    """The error of the one event in `rest`; fails when there is anything else in it."""
    if sample.dialect is Dialect.OLLAMA:
        assert rest.endswith(b"}\n") and rest.count(b"\n") == 1
        return {"message": orjson.loads(rest)["error"]}
    name, _, payload = rest.rpartition(b"data: ")
    assert name == (b"event: error\n" if sample.dialect in (Dialect.MESSAGES, Dialect.RESPONSES) else b"")
    assert payload.endswith(b"}\n\n") and payload.count(b"\n") == 2
    value = orjson.loads(payload)
    error: dict[str, str] = value if sample.dialect is Dialect.RESPONSES else value["error"]
    return error


@DIALECT
@DEATH
@ON_ITS_LOOP
async def test_h5_no_finish_and_no_done_is_invented(sample: Sample, death: Death) -> None:
    found = await broken(sample, death)
    invented = (b"[DONE]", b"finish_reason", b"stop_reason", b"message_stop", b"response.completed", b'"done"')
    assert not any(mark in found.rest for mark in invented)
    assert not found.whole


@DEATH
@ON_ITS_LOOP
async def test_h5_sdk_raises_and_does_not_return_half_an_answer(death: Death) -> None:
    seen = asyncio.Event()
    die = dying(death, *five(SAMPLES[0]), content_type=SAMPLES[0].content_type, seen=seen)
    got: list[str] = []
    async with (
        staged(a=die, timeouts={"stall_s": IDLE_S}) as stage,
        AsyncOpenAI(base_url=url(stage.app, "/v1"), api_key="k", max_retries=0) as client,
    ):
        with pytest.raises(openai.APIError):
            async for piece in await client.chat.completions.create(model="m", messages=[], stream=True):
                got.append(piece.choices[0].delta.content or "")
                if len(got) == EVENTS:
                    seen.set()
    assert got == ["w0", "w1", "w2", "w0", "w1"]


@DIALECT
@DEATH
@ON_ITS_LOOP
async def test_h5_client_of_http_1_0_is_told_too(sample: Sample, death: Death) -> None:
    """It knows the end of a stream only by its connection's, so the error event is all that it has."""
    seen, events = asyncio.Event(), b"".join(five(sample))
    die = dying(death, events, content_type=sample.content_type, seen=seen)
    async with staged(a=die, timeouts={"stall_s": IDLE_S}) as stage:
        ear, _ = await listen(stage.app.port, sample.target, sample.body, "1.0")
        await until(lambda: ear.whole.endswith(events), what="the events")
        seen.set()
        await until(lambda: ear.closed, what="the end of the connection")
        assert told_error(sample, ear.whole.partition(events)[2])["message"]


@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("death", DEATHS[:3], ids=lambda death: death.dies.__name__)
@pytest.mark.parametrize("kind", ["json", "gzip"])
@ON_ITS_LOOP
async def test_h5_broken_answer_that_takes_no_error_event_is_an_aborted_transfer(
    kind: str, death: Death, version: str
) -> None:
    """Plain, or packed: nothing can be said inside it, so the transfer itself must not look whole."""
    seen = asyncio.Event()

    async def die(exchange: Exchange) -> None:
        lines = ["content-type: text/event-stream", "content-encoding: gzip"]
        lines = ["content-type: application/json"] if kind == "json" else lines
        await exchange.head("200 OK", "transfer-encoding: chunked", *lines)
        await exchange.chunk(b"half")
        await seen.wait()
        await death.dies(exchange)

    async with staged(a=die, timeouts={"stall_s": IDLE_S}) as stage:
        ear, _ = await listen(stage.app.port, "/v1/chat/completions", chat(), version)
        await until(lambda: b"half" in ear.whole, what="the half answer")
        seen.set()
        await until(lambda: ear.closed, what="the end of the connection")
        assert ear.reset if version == "1.0" else not ear.whole.endswith(b"0\r\n\r\n")
        assert b"error" not in ear.whole
        ended = await stage.ended_one()
        assert (ended.outcome, ended.failure) == (Outcome.FAILED_AFTER_COMMIT, death.code)
        assert stage.circuit().failures == 1
        assert counts_of(stage, Role.SPECULATIVE, death.code) == {"outcome": 1.0, "failure": 1.0}


@DEATH
@pytest.mark.parametrize("finished", [0, 1])
@ON_ITS_LOOP
async def test_h5_finish_of_one_of_two_choices_is_no_end_of_the_answer(death: Death, finished: int) -> None:
    def choice(index: int, finish: str | None) -> bytes:
        value = content("w", index=index, finish_reason=finish)
        return b"data: " + orjson.dumps(value) + b"\n\n"

    events = [choice(0, None), choice(1, None), choice(finished, "stop"), choice(1 - finished, None)]
    seen = asyncio.Event()
    die = dying(death, *events, content_type=SAMPLES[0].content_type, seen=seen)
    async with staged(a=die, timeouts={"stall_s": IDLE_S}) as stage, RawClient(stage.app.port) as client:
        await client.send(request(body=chat(stream=True, n=2)))
        seen.set()
        said = await client.answer()
        assert (said.whole, b'"error"' in said.body) == (False, True)


@DIALECT
@pytest.mark.parametrize("death", DEATHS, ids=lambda death: death.dies.__name__)
@ON_ITS_LOOP
async def test_h5_nothing_is_added_behind_an_answer_that_is_whole(sample: Sample, death: Death) -> None:
    """Its dialect's end has come: however the connection ends then, the client has everything."""
    pieces = (*five(sample), sample.end)
    seen = asyncio.Event()
    die = dying(death, *pieces, content_type=sample.content_type, seen=seen)
    async with staged(a=die, timeouts={"stall_s": IDLE_S}) as stage, RawClient(stage.app.port) as client:
        await client.send(request(sample.target, sample.body))
        await client.head()
        body = b""
        while len(body) < len(b"".join(pieces)):
            body += await client.chunk() or b""
        seen.set()
        while piece := await client.chunk():
            body += piece
        assert body == b"".join(pieces)


# ---------------------------------------------------------------- how it is counted


@DEATH
@ROLE
@ON_ITS_LOOP
async def test_h5_each_end_is_counted_for_its_engine_under_its_own_word(death: Death, role: Role) -> None:
    found = await broken(SAMPLES[0], death, role)
    assert (found.outcome, found.failure) == (Outcome.FAILED_AFTER_COMMIT, death.code)
    assert found.counts == {"outcome": 1.0, "failure": 1.0}


@DIALECT
@DEATH
@ROLE
@ON_ITS_LOOP
async def test_h5_every_dialect_is_held_against_its_engine_and_not_tried_again(
    sample: Sample, death: Death, role: Role
) -> None:
    found = await broken(sample, death, role)
    assert (found.failures, found.asked) == (1, (1, 0) if role is Role.SPECULATIVE else (0, 1))


@DEATH
@ON_ITS_LOOP
async def test_h5_engine_that_breaks_stream_after_stream_gets_no_more(death: Death) -> None:
    die = dying(death, *five(SAMPLES[0]), content_type=SAMPLES[0].content_type)
    good = sends(*SAMPLES[0].events, SAMPLES[0].end)
    sections = {"timeouts": {"stall_s": IDLE_S}, "circuit": {"max_failures": 3, "open_s": 600}}
    async with staged(a=die, b=good, **sections) as stage:
        said = [await stage.ask(stream=True) for _ in range(5)]
        assert [answer.whole for answer in said] == [False, False, False, True, True]


@pytest.mark.parametrize("death", [death for death in DEATHS if death.dies is not falls_silent], ids=lambda d: d.code)
@DIALECT
async def test_h5_other_engine_answers_when_a_stream_ends_before_its_first_event(sample: Sample, death: Death) -> None:
    """Nothing has gone to the client yet, so it gets one whole answer and learns of nothing."""
    die = dying(death, content_type=sample.content_type)
    good = sends(*sample.events, sample.end, content_type=sample.content_type)
    async with staged(a=die, b=good) as stage, RawClient(stage.app.port) as client:
        await client.send(request(sample.target, sample.body))
        said = await client.answer()
        assert (said.body, said.whole) == (b"".join(sample.events) + sample.end, True)
        assert said.header("x-crossover-backend") == "baseline"

"""A stream that breaks says so in its dialect and does not look whole; one that ends, ends as it came (H5)."""

import asyncio
from collections.abc import Awaitable, Callable

import orjson
import pytest
from fakes.dialects import SAMPLES, Sample
from fakes.engine import Exchange
from fakes.leaping import leaping
from fakes.raw import RawClient, request
from fakes.stage import staged
from fakes.until import turns

from proxy.model import Dialect, Outcome

DIALECT = pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.dialect.value)

# ---------------------------------------------------------------- a stream that breaks


async def closes(exchange: Exchange, _: Sample) -> None:
    exchange.writer.close()


async def resets(exchange: Exchange, _: Sample) -> None:
    exchange.reset()


async def falls_silent(exchange: Exchange, _: Sample) -> None:
    await exchange.gone()


async def closes_in_a_line(exchange: Exchange, sample: Sample) -> None:
    await exchange.chunk(sample.events[0][:-9])
    exchange.writer.close()


async def falls_silent_in_a_line(exchange: Exchange, sample: Sample) -> None:
    await exchange.chunk(sample.events[0][:-9])
    await exchange.gone()


async def breaks_its_framing(exchange: Exchange, _: Sample) -> None:
    await exchange.send(b"no chunk size\r\n")
    await exchange.gone()


DEATHS = [closes, resets, falls_silent, closes_in_a_line, falls_silent_in_a_line, breaks_its_framing]
DEATH = pytest.mark.parametrize("death", DEATHS, ids=lambda death: death.__name__)
Death = Callable[[Exchange, Sample], Awaitable[None]]


class Broken:
    """One broken stream as its client saw it: `rest` is what came after the three whole events."""

    def __init__(self) -> None:
        self.rest = b""
        self.whole = False
        self.outcome: Outcome | None = None
        self.failures = 0


async def break_off(sample: Sample, death: Death) -> Broken:
    dying = asyncio.Event()

    async def die(exchange: Exchange) -> None:
        await exchange.stream_head(sample.content_type)
        for each in sample.events:
            await exchange.chunk(each)
        await dying.wait()
        await death(exchange, sample)

    stall_s = 0.05 if "silent" in death.__name__ else 60
    broken = Broken()
    async with staged(a=die, timeouts={"stall_s": stall_s}) as stage, RawClient(stage.app.port) as client:
        await client.send(request(sample.target, sample.body))
        await client.head()
        seen = b""
        while len(seen) < len(b"".join(sample.events)):
            piece = await client.chunk()
            assert piece, "the stream ended before it was broken off"
            seen += piece
        dying.set()
        while piece := await client.chunk():
            broken.rest += piece
        broken.whole = piece == b""
        broken.outcome = (await stage.ended_one()).outcome
        broken.failures = stage.circuit().failures
    return broken


@DIALECT
@DEATH
async def test_broken_stream_ends_with_one_error_event(sample: Sample, death: Death) -> None:
    rest = (await break_off(sample, death)).rest
    if sample.dialect is Dialect.OLLAMA:
        assert list(orjson.loads(rest)) == ["error"] and rest.endswith(b"}\n")
        return
    lines = rest.split(b"\n")
    named = sample.dialect in (Dialect.MESSAGES, Dialect.RESPONSES)
    assert lines[:-3] == ([b"event: error"] if named else []) and lines[-2:] == [b"", b""]
    said = orjson.loads(lines[-3].removeprefix(b"data: "))
    assert said["type"] == "error" if named else list(said) == ["error"]


@DIALECT
@DEATH
async def test_broken_stream_does_not_look_whole(sample: Sample, death: Death) -> None:
    assert not (await break_off(sample, death)).whole, "the client's transfer ended as if the answer were complete"


@DIALECT
@DEATH
async def test_broken_stream_counts_as_failed_after_commit(sample: Sample, death: Death) -> None:
    assert (await break_off(sample, death)).outcome is Outcome.FAILED_AFTER_COMMIT


@DEATH
async def test_broken_stream_is_held_against_its_engine(death: Death) -> None:
    assert (await break_off(SAMPLES[0], death)).failures == 1


async def test_error_event_of_responses_goes_on_counting() -> None:
    broken = await break_off(SAMPLES[2], closes)
    assert orjson.loads(broken.rest.split(b"data: ")[1])["sequence_number"] == 3


async def test_stall_names_its_setting() -> None:
    assert b"timeouts.stall_s" in (await break_off(SAMPLES[0], falls_silent)).rest


async def test_error_event_comes_after_the_content_that_the_engine_sent_with_its_end() -> None:
    """Content and end in one segment: all of it is passed on before the error is told."""

    async def sudden(exchange: Exchange) -> None:
        await exchange.stream_head()
        await exchange.chunk(b"".join(SAMPLES[0].events[:2]))
        exchange.writer.close()

    async with staged(a=sudden) as stage:
        body = (await stage.ask(stream=True)).body
        assert body.index(b'"w1"') < body.index(b'"error"')


@leaping
async def test_broken_plain_answer_is_shorter_than_its_length() -> None:
    async def half(exchange: Exchange) -> None:
        await exchange.head("200 OK", "content-type: application/json", "content-length: 9")
        await exchange.send(b'{"a"')
        await exchange.gone()

    async with staged(a=half, timeouts={"stall_s": 0.03}) as stage:
        said = await stage.ask()
        assert (said.body, said.whole) == (b'{"a"', False)


async def test_broken_plain_answer_in_chunks_does_not_look_whole() -> None:
    async def half(exchange: Exchange) -> None:
        await exchange.stream_head("application/json")
        await exchange.chunk(b'{"a"')
        exchange.writer.close()

    async with staged(a=half) as stage:
        said = await stage.ask()
        assert (said.body, said.whole) == (b'{"a"', False)


# ---------------------------------------------------------------- ends without the usual mark


def ends_after(*pieces: bytes) -> Callable[[Exchange], Awaitable[None]]:
    async def send(exchange: Exchange) -> None:
        await exchange.stream_head()
        for piece in pieces:
            await exchange.chunk(piece)
        await exchange.end()

    return send


async def test_proper_end_without_finish_keeps_its_bytes_and_tells_an_error() -> None:
    events = SAMPLES[0].events
    async with staged(a=ends_after(*events)) as stage:
        said = await stage.ask(stream=True)
        head, error = said.body[: len(b"".join(events))], said.body[len(b"".join(events)) :]
        assert head == b"".join(events) and error.startswith(b'data: {"error":') and not said.whole


async def test_proper_end_with_a_finish_reason_passes_without_done() -> None:
    pieces = (*SAMPLES[0].events, SAMPLES[0].end.removesuffix(b"data: [DONE]\n\n"))
    async with staged(a=ends_after(*pieces)) as stage:
        said = await stage.ask(stream=True)
        assert (said.body, said.whole) == (b"".join(pieces), True)


async def test_engines_own_error_event_passes_with_its_done() -> None:
    error = b'data: {"error":{"message":"KV exhausted","type":"SERVICE_UNAVAILABLE","code":503}}\n\ndata: [DONE]\n\n'
    pieces = (SAMPLES[0].events[0], error)
    async with staged(a=stepped(*pieces)) as stage:
        said = await stage.ask(stream=True)
        assert (said.body, said.whole) == (b"".join(pieces), True)


async def test_engines_own_error_event_counts_as_failed() -> None:
    error = b'data: {"error":{"message":"KV exhausted","type":"SERVICE_UNAVAILABLE","code":503}}\n\ndata: [DONE]\n\n'
    async with staged(a=stepped(SAMPLES[0].events[0], error)) as stage:
        await stage.ask(stream=True)
        assert (await stage.ended_one()).outcome is Outcome.FAILED_AFTER_COMMIT


def stepped(*pieces: bytes) -> Callable[[Exchange], Awaitable[None]]:
    """Pieces far enough apart that each is read by itself."""

    async def send(exchange: Exchange) -> None:
        await exchange.stream_head()
        for piece in pieces:
            await exchange.chunk(piece)
            await turns(20)
        await exchange.end()

    return send

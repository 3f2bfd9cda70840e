"""Streams pass byte for byte and at once, and one that breaks says so in its dialect (H2, H4, H5, H23, H27)."""

import asyncio
import tracemalloc
from collections.abc import Awaitable, Callable

import orjson
import pytest
from fakes.dialects import SAMPLES, Sample
from fakes.engine import Exchange, content, stream
from fakes.raw import RawClient, ask, chat, request
from fakes.stage import staged
from fakes.until import until

from proxy.model import Outcome

DIALECT = pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.dialect.value)
ENDING = pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"], ids=["lf", "crlf", "cr"])
PIECES = pytest.mark.parametrize("piece_bytes", [1, 7, 1 << 20])

TRICKY = b"""data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}

: keep-alive

:

data:{"choices":[{"index":0,"delta":{"content":"WORDS"},"finish_reason":null}]}

data:

data: {"choices":[{"index":1,"delta":{"tool_calls":[{"index":0}]},"finish_reason":null}],"invented":[1,{"a":null}]}

data: {"choices":[{"index":0,"delta":{"content":null},"finish_reason":"stop","matched_stop":7}]}

data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":42,"total_tokens":47}}

data: [DONE]

""".replace(b"WORDS", "\u4f60\u597d \U0001f469\u200d\U0001f680 \xe9 \u2028 \x85".encode())


def in_pieces(body: bytes, piece_bytes: int) -> Callable[[Exchange], Awaitable[None]]:
    async def send(exchange: Exchange) -> None:
        await exchange.stream_head()
        for start in range(0, len(body), piece_bytes):
            await exchange.chunk(body[start : start + piece_bytes])
            if piece_bytes == 1:
                await asyncio.sleep(0)
        await exchange.end()

    return send


async def pass_through(script: Callable[[Exchange], Awaitable[None]]) -> bytes:
    async with staged(a=script) as stage:
        said = await stage.ask(stream=True)
        assert said.whole, "the stream did not end properly"
        return said.body


# ---------------------------------------------------------------- byte for byte


@ENDING
@PIECES
async def test_bytes_are_the_engines_whatever_the_line_ends_and_pieces(line_end: bytes, piece_bytes: int) -> None:
    body = TRICKY.replace(b"\n", line_end)
    assert await pass_through(in_pieces(body, piece_bytes)) == body


@ENDING
@PIECES
async def test_usage_is_read_whatever_the_line_ends_and_pieces(line_end: bytes, piece_bytes: int) -> None:
    async with staged(a=in_pieces(TRICKY.replace(b"\n", line_end), piece_bytes)) as stage:
        await stage.ask(stream=True)
        assert (await stage.ended_one()).usage.completion_tokens == 42


@DIALECT
async def test_whole_stream_passes_unchanged(sample: Sample) -> None:
    async def send(exchange: Exchange) -> None:
        await exchange.stream_head(sample.content_type)
        await exchange.chunk(b"".join(sample.events) + sample.end)
        await exchange.end()

    async with staged(a=send) as stage:
        said = await ask(stage.app.port, request(sample.target, sample.body))
        assert (said.body, said.whole) == (b"".join(sample.events) + sample.end, True)


@DIALECT
async def test_whole_stream_counts_as_finished(sample: Sample) -> None:
    async def send(exchange: Exchange) -> None:
        await exchange.stream_head(sample.content_type)
        await exchange.chunk(b"".join(sample.events) + sample.end)
        await exchange.end()

    async with staged(a=send) as stage:
        await ask(stage.app.port, request(sample.target, sample.body))
        assert (await stage.ended_one()).outcome is Outcome.FINISHED


async def test_event_of_a_megabyte_passes_unchanged() -> None:
    body = b"data: " + orjson.dumps(content("x" * (1 << 20))) + b"\n\n" + TRICKY
    assert await pass_through(in_pieces(body, 65536)) == body


async def test_last_event_without_its_blank_line_passes_at_a_proper_end() -> None:
    body = TRICKY + b"data: [DONE]"
    assert await pass_through(in_pieces(body, 1 << 20)) == body


async def test_request_body_reaches_the_engine_unchanged() -> None:
    body = b'{ "stream":false,\n"cache_salt":"\\u0000", "n":1,"n": 1, "messages":[],"invented":{"a":1e400},"x":1.0}  '
    async with staged() as stage:
        await ask(stage.app.port, request(body=body))
        assert stage.a.requests[0].body == body


async def test_nothing_is_added_to_a_request_for_a_stream() -> None:
    async with staged(a=stream) as stage:
        await stage.ask(stream=True)
        assert stage.a.requests[0].body == chat(stream=True)


async def test_stream_to_an_old_client_has_the_same_bytes() -> None:
    async with staged(a=in_pieces(TRICKY, 100)) as stage:
        said = await ask(stage.app.port, request(body=chat(stream=True), version="1.0"))
        assert (said.body, said.header("transfer-encoding")) == (TRICKY, None)


# ---------------------------------------------------------------- at once


@ENDING
async def test_each_event_arrives_before_the_engine_sends_the_next(line_end: bytes) -> None:
    arrived = asyncio.Semaphore(0)

    async def stepwise(exchange: Exchange) -> None:
        await exchange.stream_head()
        for number in range(20):
            await exchange.chunk(b"data: " + orjson.dumps(content(f"w{number}")) + 2 * line_end)
            await arrived.acquire()
        await exchange.chunk(b"data: [DONE]" + 2 * line_end)
        await exchange.end()

    async with staged(a=stepwise) as stage, RawClient(stage.app.port) as client:
        await client.send(request(body=chat(stream=True)))
        await client.head()
        for number in range(20):
            assert f'"w{number}"'.encode() in (await client.chunk() or b"")
            arrived.release()


async def test_head_has_the_engines_content_type() -> None:
    async with staged(a=stream) as stage:
        assert (await stage.ask(stream=True)).header("content-type") == "text/event-stream; charset=utf-8"


# ---------------------------------------------------------------- memory


async def test_engine_is_held_up_by_a_client_that_does_not_read() -> None:
    sent_bytes, writers = [0], list[asyncio.StreamWriter]()

    async def flood(exchange: Exchange) -> None:
        writers.append(exchange.writer)
        await exchange.stream_head()
        for _ in range(2048):
            await exchange.event(content("x" * 32768))
            sent_bytes[0] += 32768
        await exchange.end()

    async with staged(a=flood) as stage, RawClient(stage.app.port) as client:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await client.send(request(body=chat(stream=True)))
        await until(lambda: writers and writers[0].transport.get_write_buffer_size(), what="the engine held up")
        await settled(lambda: sent_bytes[0])
        client.leave(reset=True)
        assert sent_bytes[0] < 32 << 20, "what the client does not read is piled up"


@pytest.mark.parametrize("content_type", ["text/event-stream", "application/json"])
async def test_client_that_takes_again_gets_the_whole_of_an_answer_that_was_held_up(content_type: str) -> None:
    writers: list[asyncio.StreamWriter] = []
    events = [b"data: %d %b\n\n" % (number, b"x" * 32768) for number in range(1024)]

    async def flood(exchange: Exchange) -> None:
        writers.append(exchange.writer)
        await exchange.stream_head(content_type)
        for event in (*events, b"data: [DONE]\n\n"):
            await exchange.chunk(event)
        await exchange.end()

    async with staged(a=flood) as stage, RawClient(stage.app.port) as client:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await client.send(request(body=chat(stream=True)))
        await until(lambda: writers and writers[0].transport.get_write_buffer_size(), what="the engine held up")
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        said = await client.answer()
        assert said.whole and said.body == b"".join(events) + b"data: [DONE]\n\n"


async def settled(count: Callable[[], int]) -> None:
    """Wait until a count has not changed for twenty looks."""
    same, before = 0, -1

    def still() -> bool:
        nonlocal same, before
        same, before = (same + 1, before) if count() == before else (0, count())
        return same > 20

    await until(still, what="the count at rest")


@pytest.mark.parametrize("content_type", ["text/event-stream", "application/json"])
async def test_endless_line_passes_in_constant_memory(content_type: str) -> None:
    piece, count = b"x" * 65536, 320

    async def endless(exchange: Exchange) -> None:
        await exchange.stream_head(content_type)
        await exchange.chunk(b"data: ")
        for _ in range(count):
            await exchange.chunk(piece)
        await exchange.end()

    async with staged(a=endless) as stage, RawClient(stage.app.port) as client:
        await client.send(request(body=chat(stream=True)))
        await client.head()
        tracemalloc.start()
        size = 0
        while data := await client.reader.read(1 << 20):
            size += len(data)
            if data.endswith(b"0\r\n\r\n"):
                break
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert size > len(piece) * count and peak < 16 << 20, f"{peak >> 20} MiB were held for a line of {size >> 20} MiB"

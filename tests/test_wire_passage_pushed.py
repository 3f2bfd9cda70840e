"""What the backend's connection hands over goes to the client: in the very chunks that came, or framed anew."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from fakes.answers import SSE, FakeAnswer, framed
from fakes.raw import RawClient, request
from fakes.serving import served
from fakes.until import turns, until

from proxy.closing import CloseReason
from proxy.errors import BackendBroken, CrossoverError, ShuttingDown
from proxy.model import Dialect
from proxy.protocol.answer_head import Framing
from proxy.protocol.fields import Fields
from proxy.protocol.sse import Scanner
from proxy.wire.attempt import Opened, Verdict
from proxy.wire.passage import Passage, Patience
from proxy.wire.request import Request

JSON: Fields = [(b"content-type", b"application/json")]
WORD = b'data: {"choices":[{"index":0,"delta":{"content":"w"},"finish_reason":null}]}\n\n'
DONE = b"data: [DONE]\n\n"
LAST = b"0\r\n\r\n"
# More than a socket takes from a writer whose reader reads nothing.
LARGE = b"data: " + b"x" * 60_000 + b"\n\n"
MOST_PIECES = 2000


def anew(payload: bytes) -> bytes:
    """A chunk as we frame it."""
    return b"%x\r\n%b\r\n" % (len(payload), payload)


@dataclass
class Under:
    """A passage under way: its client, its answer that says what it is told to, and itself."""

    client: RawClient
    answer: FakeAnswer
    passage: Passage
    closings: list[CloseReason]

    async def rest(self) -> bytes:
        """All that the client gets behind the head."""
        return await self.client.rest()

    def end(self) -> None:
        assert self.answer.sink is not None
        self.answer.sink.ended()


@contextlib.asynccontextmanager
async def under_way(
    *,
    fields: Fields = SSE,
    framing: Framing = Framing.CHUNKED,
    length: int | None = None,
    first: bytes = WORD,
    method: str = "GET",
    version: str = "1.1",
    unread_s: float = 30.0,
) -> AsyncIterator[Under]:
    """An answer whose head and first payload have been passed on, and that waits for more."""
    fake: Any = FakeAnswer((first,), fields=list(fields), framing=framing, length=length, hangs=True)
    scanner = Scanner(Dialect.CHAT) if fields is SSE else None
    passage = Passage(
        Opened(fake, Verdict.GOOD, scanner),
        Dialect.CHAT,
        sequences=1,
        limits=Patience(30.0, 30.0),
        clock=asyncio.get_running_loop().time,
        on_bytes=lambda: None,
    )

    async def handler(came: Request) -> None:
        await passage.run(came, b"")

    async with served(handler, unread_s=unread_s) as server, RawClient(server.port) as client:
        await client.send(request("/", b"", "connection: close", method=method, version=version))
        await client.head()
        await until(lambda: fake.sink, what="the sink")
        yield Under(client, fake, passage, server.book.closings)


# ---------------------------------------------------------------- framing


async def test_chunks_of_whole_events_pass_as_the_very_bytes_that_came() -> None:
    async with under_way() as run:
        run.answer.say(WORD)
        run.answer.say(WORD + WORD)
        run.answer.say(DONE)
        run.end()
        assert await run.rest() == anew(WORD) + framed(WORD) + framed(WORD + WORD) + framed(DONE) + LAST
        assert not run.passage.held_up


async def test_event_that_is_cut_is_held_and_framed_anew() -> None:
    async with under_way() as run:
        run.answer.say(WORD + WORD[:9])
        run.answer.say(WORD[9:])
        run.answer.say(DONE)
        run.end()
        assert await run.rest() == anew(WORD) + anew(WORD) + anew(WORD) + framed(DONE) + LAST


async def test_held_bytes_are_never_overtaken_by_a_chunk_that_ends_an_event() -> None:
    async with under_way() as run:
        run.answer.say(b"data: ")
        run.answer.say(b"{}\n\n")
        run.answer.say(DONE)
        run.end()
        assert await run.rest() == anew(WORD) + anew(b"data: {}\n\n") + framed(DONE) + LAST


async def test_event_too_long_to_hold_passes_in_its_own_chunks() -> None:
    begin, more = b"data: " + b"x" * 70_000, b"x" * 9000
    async with under_way() as run:
        run.answer.say(begin)
        run.answer.say(more)
        run.answer.say(b"\n\n")
        run.answer.say(DONE)
        run.end()
        came = await run.rest()
        assert came.startswith(anew(WORD) + anew(begin) + framed(more))
        assert came.endswith(framed(DONE) + LAST)


async def test_chunks_of_a_plain_answer_pass_wherever_they_are_cut() -> None:
    async with under_way(fields=JSON, first=b'{"a":') as run:
        run.answer.say(b"[1")
        run.answer.say(b"]}")
        run.end()
        assert await run.rest() == anew(b'{"a":') + framed(b"[1") + framed(b"]}") + LAST


@pytest.mark.parametrize("fields", [SSE, JSON], ids=["stream", "plain"])
async def test_client_of_http10_gets_no_chunks(fields: Fields) -> None:
    async with under_way(fields=fields, version="1.0") as run:
        run.answer.say(WORD)
        run.answer.say(DONE)
        run.end()
        assert await run.rest() == WORD + WORD + DONE


async def test_head_gets_no_body_whatever_comes() -> None:
    async with under_way(method="HEAD") as run:
        run.answer.say(WORD)
        run.answer.say(DONE)
        run.end()
        assert await run.rest() == b""


async def test_payload_of_an_engine_that_frames_by_the_end_is_framed_for_the_client() -> None:
    async with under_way(framing=Framing.CLOSE) as run:
        run.answer.say(WORD)
        run.answer.say(DONE)
        run.end()
        assert await run.rest() == anew(WORD) + anew(WORD) + anew(DONE) + LAST


@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_length_of_an_engine_is_the_clients_too(version: str) -> None:
    size_bytes = len(WORD + WORD + DONE)
    fields = [*JSON, (b"content-length", b"%d" % size_bytes)]
    async with under_way(fields=fields, framing=Framing.LENGTH, length=size_bytes, version=version) as run:
        run.answer.say(WORD)
        run.answer.say(DONE)
        run.end()
        assert await run.rest() == WORD + WORD + DONE


@pytest.mark.parametrize("cut", range(1, len(WORD + DONE)))
async def test_no_cut_of_a_chunk_changes_a_byte(cut: int) -> None:
    whole = WORD + DONE
    async with under_way() as run:
        for begin, end in pairwise((0, cut, len(whole))):
            run.answer.say(whole[begin:end])
        run.end()
        pieces = [piece async for piece in chunks_of(run.client)]
        assert b"".join(pieces) == WORD + whole


async def chunks_of(client: RawClient) -> AsyncIterator[bytes]:
    while piece := await client.chunk():
        yield piece
    assert piece == b"", "the answer was cut"


# ---------------------------------------------------------------- behind the end


async def test_what_comes_behind_the_end_is_dropped() -> None:
    async with under_way() as run:
        sink = run.answer.sink
        run.answer.say(DONE)
        run.end()
        assert sink is not None
        sink.came(framed(WORD), WORD)
        sink.ended()
        sink.broke(BackendBroken("broke"))
        assert await run.rest() == anew(WORD) + framed(DONE) + LAST
    assert run.passage.error is None


@pytest.mark.parametrize("error", [BackendBroken("no more of it"), ShuttingDown("no more of it")])
async def test_what_comes_behind_a_break_is_dropped(error: CrossoverError) -> None:
    async with under_way() as run:
        sink: Any = run.answer.sink
        sink.came(framed(WORD[:9]), WORD[:9])
        if isinstance(error, ShuttingDown):
            run.passage.end(error)
        else:
            sink.broke(error)
        sink.came(framed(WORD), WORD)
        sink.ended()
        came = await run.rest()
        assert came.startswith(anew(WORD))
        assert (came.count(b'"w"'), came.count(b"no more of it"), came.endswith(LAST)) == (1, 1, False)


# ---------------------------------------------------------------- a client that takes less


async def fill(run: Under) -> int:
    """Say large events until the answer is paused; how many that took."""
    for count in range(MOST_PIECES):
        if run.answer.paused:
            return count
        run.answer.say(LARGE)
        await turns(1)
    raise AssertionError("the answer was never paused")


async def test_client_that_does_not_read_pauses_the_answer_and_no_byte_is_lost() -> None:
    async with under_way() as run:
        count = await fill(run)
        assert run.answer.paused == [True]
        # What had been read already still comes while the answer is paused.
        run.answer.say(LARGE)
        run.answer.say(WORD[:9])
        run.answer.say(WORD[9:])
        expected = anew(WORD) + framed(LARGE) * (count + 1) + anew(WORD)
        async with asyncio.timeout(10):
            came = await run.client.reader.readexactly(len(expected))
        assert came == expected
        await until(lambda: run.answer.paused == [True, False], what="the answer being resumed")
        assert run.passage.held_up
        run.answer.say(DONE)
        run.end()
        assert await run.rest() == framed(DONE) + LAST


async def test_answer_that_ends_while_its_client_is_full_is_delivered_whole() -> None:
    async with under_way() as run:
        count = await fill(run)
        run.answer.say(DONE)
        run.end()
        assert await run.rest() == anew(WORD) + framed(LARGE) * count + framed(DONE) + LAST


async def test_client_that_takes_nothing_any_more_is_dropped() -> None:
    async with under_way(unread_s=0.05) as run:
        await fill(run)
        await until(lambda: run.closings == [CloseReason.UNREAD], what="the client being dropped")
        await until(lambda: run.answer.closed, what="the answer being given up")

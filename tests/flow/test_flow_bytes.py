"""Not a byte of a request or an answer is changed, however it is framed and wherever it is cut."""

import asyncio
import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from hashlib import sha256
from itertools import accumulate, pairwise

import pytest
from fakes.engine import Exchange, FakeEngine
from fakes.proxy import running, settings
from fakes.raw import RawClient, Said
from fakes.until import turns
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st

from proxy.app import App

EVENT_STREAM = "text/event-stream; charset=utf-8"
DONE = b"data: [DONE]\n\n"
# Of the loop: in so many a piece has crossed the proxy. In fewer, all is there before the first of it was passed on.
TURNS = 10


class Framing(StrEnum):
    """How an engine frames what it says."""

    CHUNKED = "transfer-encoding: chunked"
    LENGTH = "content-length: {}"
    CLOSE = "connection: close"


@dataclass(frozen=True)
class Planned:
    """An answer: its body, where that is cut into chunks, how it is framed, and where the bytes on the wire are cut;
    without `writes` they are cut where the chunks are."""

    body: bytes
    cuts: tuple[int, ...] = ()
    framing: Framing = Framing.CHUNKED
    content_type: str = "application/json"
    size_line: bytes = b"%x\r\n"
    writes: tuple[int, ...] | None = None


@dataclass
class Stage:
    """The running proxy between two engines that answer as planned and keep the hash of what they were sent."""

    runner: asyncio.Runner
    app: App
    planned: Planned = field(default_factory=lambda: Planned(b""))
    sent: list[str] = field(default_factory=list)

    def ask(
        self, target: str, body: bytes, cuts: tuple[int, ...], *, chunked: bool, answer: Planned, version: str = "1.1"
    ) -> Said:
        self.planned = answer
        self.sent.clear()
        return self.runner.run(self._ask(target, body, cuts, chunked=chunked, version=version))

    async def _ask(self, target: str, body: bytes, cuts: tuple[int, ...], *, chunked: bool, version: str) -> Said:
        async with RawClient(self.app.port) as client:
            framing = "transfer-encoding: chunked" if chunked else f"content-length: {len(body)}"
            kind = "content-type: application/octet-stream"
            head = f"POST {target} HTTP/{version}\r\nhost: p\r\n{kind}\r\n{framing}\r\n\r\n".encode()
            await client.send(head)
            await write_cut(client.writer, body, cuts, chunked=chunked)
            return await client.answer()


async def write_cut(writer: asyncio.StreamWriter, body: bytes, cuts: tuple[int, ...], *, chunked: bool) -> None:
    """Write a body in pieces, each in a segment of its own as far as the kernel allows, and heard before the next."""
    for piece in pieces(body, cuts):
        writer.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
        await writer.drain()
        await turns(TURNS)
    if chunked:
        writer.write(b"0\r\n\r\n")
        await writer.drain()


def on_the_wire(planned: Planned) -> list[bytes]:
    """The body as it is framed, chunk by chunk."""
    if planned.framing is not Framing.CHUNKED:
        return [planned.body]
    chunks = [planned.size_line % len(piece) + piece + b"\r\n" for piece in pieces(planned.body, planned.cuts)]
    return [*chunks, b"0\r\n\r\n"]


def pieces(body: bytes, cuts: tuple[int, ...]) -> Iterator[bytes]:
    edges = sorted({0, len(body), *(cut % (len(body) + 1) for cut in cuts)})
    for begin, end in pairwise(edges):
        yield body[begin:end]


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    made: list[Stage] = []

    async def script(exchange: Exchange) -> None:
        made[0].sent.append(sha256(exchange.request.body).hexdigest())
        planned = made[0].planned
        framing, chunked = planned.framing.format(len(planned.body)), planned.framing is Framing.CHUNKED
        await exchange.head("200 OK", f"content-type: {planned.content_type}", framing)
        if planned.writes is None:
            await write_cut(exchange.writer, planned.body, planned.cuts, chunked=chunked)
        else:
            await write_cut(exchange.writer, b"".join(on_the_wire(planned)), planned.writes, chunked=False)
        if planned.framing is Framing.CLOSE:
            exchange.writer.close()

    async def start() -> App:
        a, b = FakeEngine(script=script), FakeEngine(role="baseline", script=script)
        await stack.enter_async_context(a)
        await stack.enter_async_context(b)
        return await stack.enter_async_context(running(settings(a.url, b.url)))

    stack = contextlib.AsyncExitStack()
    with asyncio.Runner() as runner:
        made.append(Stage(runner, runner.run(start())))
        yield made[0]
        in_flight = made[0].app.desk.snapshot().in_flight
        runner.run(stack.aclose())
    assert in_flight == 0


CUTS = st.lists(st.integers(0, 1 << 20), max_size=12).map(tuple)
BODIES = st.one_of(
    st.binary(max_size=2000),
    st.builds(lambda unit, times: unit * times, st.binary(min_size=1, max_size=300), st.integers(1, 1000)),
)
TARGETS = st.sampled_from(["/v1/chat/completions", "/v1/completions", "/generate?q=%E9&q=a+b&flag", "/v1/embeddings"])
LINE_ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])
WORDS = st.one_of(st.text(max_size=40), st.sampled_from(["你好 👩‍🚀 é", "", " ", "data", "[DON"]))


def chunk_of(word: str) -> bytes:
    return b'{"choices":[{"index":0,"delta":{"content":"%b"}}]}' % word.encode("unicode_escape").replace(b"\\", b"/")


LINES = st.one_of(
    WORDS.map(lambda word: b"data: " + chunk_of(word)),
    WORDS.map(lambda word: b"data:" + chunk_of(word)),
    WORDS.map(lambda word: b"data: " + word.encode().replace(b"\n", b"").replace(b"\r", b"")),
    WORDS.map(lambda word: b": " + word.encode().replace(b"\n", b"").replace(b"\r", b"")),
    st.sampled_from([b":", b"data:", b"data", b"id: 1", b"retry: 10", b"event: message_start", b"unknown: field"]),
)


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """A stream of events in any of SSE's spellings, whole."""
    end = draw(LINE_ENDS)
    events = draw(st.lists(st.lists(LINES, min_size=1, max_size=4), max_size=30))
    body = b"".join(b"".join(line + end for line in lines) + end for lines in events)
    return body + DONE.replace(b"\n", end)


def framing_of(chunked: bool) -> Framing:
    return Framing.CHUNKED if chunked else Framing.LENGTH


@given(target=TARGETS, body=BODIES, cuts=CUTS, chunked=st.booleans())
@effort(max_examples=50)
def test_the_engine_gets_the_requests_bytes(
    stage: Stage, target: str, body: bytes, cuts: tuple[int, ...], chunked: bool
) -> None:
    said = stage.ask(target, body, cuts, chunked=chunked, answer=Planned(b"{}"))
    assert (said.status, stage.sent) == (200, [sha256(body).hexdigest()])


@given(target=TARGETS, body=BODIES, cuts=CUTS, chunked=st.booleans())
@effort(max_examples=50)
def test_the_client_gets_the_bytes_of_a_plain_answer(
    stage: Stage, target: str, body: bytes, cuts: tuple[int, ...], chunked: bool
) -> None:
    said = stage.ask(target, b"{}", (), chunked=False, answer=Planned(body, cuts, framing_of(chunked)))
    assert (said.whole, sha256(said.body).hexdigest()) == (True, sha256(body).hexdigest())


@given(body=streams(), cuts=CUTS, chunked=st.booleans())
@effort(max_examples=50)
def test_the_client_gets_the_bytes_of_a_stream(stage: Stage, body: bytes, cuts: tuple[int, ...], chunked: bool) -> None:
    planned = Planned(body, cuts, framing_of(chunked), EVENT_STREAM)
    said = stage.ask("/v1/chat/completions", b'{"stream":true}', (), chunked=False, answer=planned)
    assert (said.whole, said.body) == (True, body)


@st.composite
def plans(draw: st.DrawFn) -> Planned:
    """A stream, cut into chunks at some of its events' ends and elsewhere, and on the wire at some of the
    chunks' ends and elsewhere."""
    body = draw(streams())
    ends = [mark.end() for mark in re.finditer(rb"\n\n|\r\n\r\n|\r\r", body)]
    planned = Planned(
        body,
        (*draw(st.lists(st.sampled_from(ends))), *draw(CUTS)),
        draw(st.sampled_from(Framing)),
        EVENT_STREAM,
        draw(st.sampled_from([b"%x\r\n", b"%06X\r\n", b"%x;name=value\r\n"])),
    )
    edges = list(accumulate(len(chunk) for chunk in on_the_wire(planned)))
    return replace(planned, writes=(*draw(st.lists(st.sampled_from(edges))), *draw(CUTS)))


@given(planned=plans(), version=st.sampled_from(["1.1", "1.0"]))
@effort(max_examples=200)
def test_the_client_decodes_what_the_engine_sent_wherever_chunks_and_reads_are_cut(
    stage: Stage, planned: Planned, version: str
) -> None:
    said = stage.ask("/v1/chat/completions", b'{"stream":true}', (), chunked=False, answer=planned, version=version)
    assert (said.whole, said.body) == (True, planned.body)


@pytest.mark.parametrize("word", [b'data: {"choices":[{"index":0,"delta":{"content":"w"},"finish_reason":null}]}\n\n'])
def test_an_event_of_two_lines_that_comes_in_two_chunks_keeps_its_order(stage: Stage, word: bytes) -> None:
    """Its second chunk looks like a whole event, and may not overtake the first, which is held back."""
    first, second = b'data: {"choices":[],\n', b'data: "a":{}}\n\n'
    body = 3 * word + first + second + word + DONE
    cuts = tuple(accumulate([len(word)] * 3 + [len(first), len(second), len(word)]))
    answer = Planned(body, cuts, content_type=EVENT_STREAM)
    said = stage.ask("/v1/chat/completions", b'{"stream":true}', (), chunked=False, answer=answer)
    assert (said.whole, said.body) == (True, body)


@given(words=st.lists(WORDS, min_size=1, max_size=20), cuts=CUTS)
@effort(max_examples=30)
def test_the_client_gets_the_bytes_of_a_stream_of_lines(stage: Stage, words: list[str], cuts: tuple[int, ...]) -> None:
    lines = [b'{"message":{"content":"%b"},"done":false}\n' % word.encode("unicode_escape")[:0] for word in words]
    body = b"".join(lines) + b'{"message":{"content":""},"done":true,"done_reason":"stop"}\n'
    planned = Planned(body, cuts, content_type="application/x-ndjson")
    said = stage.ask("/api/chat", b"{}", (), chunked=False, answer=planned)
    assert (said.whole, said.body) == (True, body)


def test_an_answer_larger_than_every_buffer_passes_whole(stage: Stage) -> None:
    body = bytes(range(256)) * 40_000
    said = stage.ask("/v1/chat/completions", body, (1, 70_000), chunked=True, answer=Planned(body, (3, 900_000)))
    assert (stage.sent, sha256(said.body).hexdigest()) == ([sha256(body).hexdigest()], sha256(body).hexdigest())

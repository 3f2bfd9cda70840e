"""What a passage owes both sides at its ends: a client that is full already, a length that must not look kept, and an
end from outside that comes too late.
"""

import asyncio

import pytest
from fakes.answers import FakeAnswer
from fakes.raw import RawClient, Said, ask, request
from fakes.serving import served, serving
from fakes.until import until

from proxy.errors import BackendBroken, ShuttingDown
from proxy.model import Dialect
from proxy.protocol.answer_head import Framing
from proxy.protocol.sse import Scanner
from proxy.wire.attempt import Opened, Verdict
from proxy.wire.passage import Passage, Patience
from proxy.wire.request import Request

JSON = [(b"content-type", b"application/json")]
GET = request("/", method="GET")
WORD = b'data: {"choices":[{"index":0,"delta":{"content":"w"},"finish_reason":null}]}\n\n'
# More than all that lies between two sockets.
LARGE_BYTES = 32 << 20


def passage_of(opened: Opened) -> Passage:
    return Passage(
        opened,
        Dialect.CHAT,
        sequences=1,
        limits=Patience(10.0, 10.0),
        clock=asyncio.get_running_loop().time,
        on_bytes=lambda: None,
    )


async def test_client_that_is_full_when_its_answer_begins_holds_the_engine_up() -> None:
    answer = FakeAnswer([bytes(LARGE_BYTES)], fields=JSON, hangs=True)

    async def handler(came: Request) -> None:
        await passage_of(Opened(answer, Verdict.GOOD)).run(came, b"")  # type: ignore[arg-type]

    async with served(handler) as server, RawClient(server.port) as client:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await client.send(GET)
        await until(lambda: answer.paused == [True], what="the engine held up")
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        async with asyncio.timeout(10):
            while answer.paused != [True, False]:
                await client.reader.read(1 << 20)


async def broken(left_bytes: int) -> tuple[Said, Passage]:
    """A stream with a length that breaks with so much of it still to come."""
    answer = FakeAnswer([WORD], failure=BackendBroken("broke"), framing=Framing.LENGTH, length=len(WORD) + left_bytes)
    passage = passage_of(Opened(answer, Verdict.GOOD, Scanner(Dialect.CHAT)))  # type: ignore[arg-type]

    async def handler(came: Request) -> None:
        await passage.run(came, b"")

    async with serving(handler) as port:
        return await ask(port, GET), passage


async def test_broken_stream_with_a_length_tells_why_where_that_leaves_it_short() -> None:
    said, _ = await broken(1000)
    assert (said.whole, said.body.startswith(WORD + b'data: {"error"')) == (False, True)


@pytest.mark.parametrize("spare_bytes", [None, -1, 0])
async def test_broken_stream_with_a_length_never_has_that_length(spare_bytes: int | None) -> None:
    event_bytes = len((await broken(1000))[0].body) - len(WORD)
    said, passage = await broken(1 if spare_bytes is None else event_bytes + spare_bytes)
    assert (said.whole, said.body, passage.error is None) == (False, WORD, False)


async def test_end_of_the_proxy_in_the_turn_of_the_answers_end_comes_too_late() -> None:
    answer = FakeAnswer([b"{}"], fields=JSON, hangs=True)
    passages: list[Passage] = []

    async def handler(came: Request) -> None:
        passages.append(passage_of(Opened(answer, Verdict.GOOD)))  # type: ignore[arg-type]
        await passages[0].run(came, b"")

    async with served(handler) as server, RawClient(server.port) as client:
        await client.send(GET)
        await until(lambda: answer.sink is not None, what="the passage")
        assert answer.sink is not None
        answer.sink.ended()
        passages[0].end(ShuttingDown("going down"))
        assert (await client.answer()).whole
        assert (passages[0].error, passages[0].delivered) == (None, True)

"""How much is read of a client that sends on behind requests that are not answered yet, or takes no answer."""

import asyncio
import contextlib

import pytest
from fakes.raw import RawClient, request
from fakes.serving import served
from fakes.until import turns, until

from proxy.closing import CloseReason
from proxy.wire.downstream import PIECE_BYTES, Reply
from proxy.wire.request import MAX_WAITING_BYTES, Request

HUGE_BYTES = 16 << 20


async def test_body_that_waits_behind_others_is_not_read_on_when_an_answer_before_it_has_ended() -> None:
    first, others = asyncio.Event(), asyncio.Event()

    async def held(asked: Request) -> Reply:
        await (first if asked.target == "/first" else others).wait()
        return Reply(200, [], b"")

    async with served(held) as server, RawClient(server.port) as client:
        client.writer.write(request("/first", method="GET") + request("/second", method="GET"))
        client.writer.write(request("/third", b"x" * HUGE_BYTES))
        await until(server.front.is_busy, what="the first request")
        [connection] = server.front.connections
        await until(lambda: connection._paused, what="a pause")
        third = connection._queue[-1]
        assert isinstance(third, Request)
        before_bytes = third.incoming._waiting_bytes
        first.set()
        assert (await client.answer()).status == 200
        await until(lambda: third.incoming._waiting_bytes > before_bytes, what="one more read")
        await until(lambda: connection._paused, what="another pause")
        assert MAX_WAITING_BYTES < third.incoming._waiting_bytes < HUGE_BYTES
        others.set()


@pytest.mark.parametrize("size_bytes", [PIECE_BYTES - 4096, PIECE_BYTES + 4096], ids=["at once", "in pieces"])
async def test_answers_do_not_pile_up_for_a_client_that_asks_on_and_takes_none(size_bytes: int) -> None:
    answered_bytes = 0

    async def answer(_: Request) -> Reply:
        nonlocal answered_bytes
        answered_bytes += size_bytes
        return Reply(200, [], bytes(size_bytes))

    async with served(answer) as server, RawClient(server.port) as client:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        with contextlib.suppress(ConnectionError):
            while answered_bytes < 2 * HUGE_BYTES and not server.book.closings:
                await client.send(request(method="GET"))
                await turns(5)
        assert server.book.closings == [CloseReason.FLOODED]


async def test_client_that_takes_its_answers_late_gets_all_of_them() -> None:
    async def answer(asked: Request) -> Reply:
        return Reply(200, [], asked.target.encode() * PIECE_BYTES)

    async with served(answer) as server, RawClient(server.port) as client:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await client.send(b"".join(request(f"/{number:02}", method="GET") for number in range(30)))
        await turns(50)
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        for number in range(30):
            said = await client.answer()
            assert (said.body[:3], len(said.body)) == (b"/%02d" % number, 3 * PIECE_BYTES)

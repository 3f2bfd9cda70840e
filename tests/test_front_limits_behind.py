"""How much is read of a client that sends on behind requests that are not answered yet."""

import asyncio

from fakes.raw import RawClient, request
from fakes.serving import served
from fakes.until import until

from proxy.wire.downstream import Reply
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

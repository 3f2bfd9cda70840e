"""What is told of one answer as its bytes come, and what a slow reader on either side costs."""

import asyncio
import operator
from collections.abc import Awaitable, Callable
from functools import partial

import pytest
from fakes.calling import Peers, Told, call, raw_server, reached, read, says
from fakes.engine import Exchange, Script, plain
from fakes.until import turns, until

from proxy.errors import BackendBroken
from proxy.protocol.answer_head import Framing
from proxy.wire import connection as module
from proxy.wire.answer import READ_AHEAD_BYTES, Answer
from proxy.wire.calls import Upstream
from proxy.wire.connection import WRITE_BYTES, Call

# The most that uvloop reads at once.
ONE_READ_BYTES = 256 * 1024
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
LENGTH = b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\n"
CLOSE = b"HTTP/1.1 200 OK\r\n\r\n"
EMPTY = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"


@pytest.fixture
def _idle_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is closed was not closed for being idle."""
    monkeypatch.setattr("proxy.wire.calls.POOL_IDLE_S", 600.0)


def chunk(payload: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(payload), payload)


async def gone(exchange: Exchange) -> None:
    await exchange.gone()


def step_by_step(*data: bytes, then: Script = gone) -> tuple[Script, Callable[[], Awaitable[None]]]:
    """A script that says the next piece whenever the second one is called, which returns when it has been said."""
    wanted: asyncio.Queue[asyncio.Event] = asyncio.Queue()

    async def say(exchange: Exchange) -> None:
        for each in data:
            said = await wanted.get()
            await exchange.send(each)
            said.set()
        await then(exchange)

    async def next_piece() -> None:
        said = asyncio.Event()
        wanted.put_nowait(said)
        await said.wait()

    return say, next_piece


async def begun(upstream: Upstream, more: Callable[[], Awaitable[None]]) -> Answer:
    """An answer whose head is the first piece of a script that goes step by step."""
    sending = asyncio.ensure_future(upstream.send(call()))
    await more()
    return await sending


# ---------------------------------------------------------------- heads


async def test_status_and_fields_are_the_engines() -> None:
    data = b"HTTP/1.1 207 Odd\r\nX-Odd:  a \r\nx-Odd: b\r\ncontent-length: 0\r\n\r\n"
    async with reached(says(data)) as (_, upstream):
        answer = await upstream.send(call())
    assert (answer.status, answer.ended) == (207, True)
    assert answer.fields == [(b"X-Odd", b"a"), (b"x-Odd", b"b"), (b"content-length", b"0")]


@pytest.mark.parametrize(
    ("data", "framing", "length"),
    [(CHUNKED, Framing.CHUNKED, None), (LENGTH, Framing.LENGTH, 8), (CLOSE, Framing.CLOSE, None)],
)
async def test_framing_is_told(data: bytes, framing: Framing, length: int | None) -> None:
    async with reached(says(data)) as (_, upstream):
        answer = await upstream.send(call())
        assert (answer.framing, answer.length, answer.ended) == (framing, length, False)
        answer.close()


@pytest.mark.parametrize(
    "data", [LENGTH, CHUNKED, b"HTTP/1.1 204 No\r\n\r\n", b"HTTP/1.1 304 No\r\ncontent-length: 8\r\n\r\n"]
)
async def test_answers_without_a_body_end_with_their_head(data: bytes) -> None:
    peers = Peers(says(data))
    async with reached(peers) as (_, upstream):
        for _ in range(2):
            answer = await upstream.send(call(method="HEAD", body=b""))
            assert (answer.framing, answer.ended, await answer.read()) == (Framing.NONE, True, b"")
    assert len(set(peers.seen)) == 1


@pytest.mark.parametrize("status", [b"100 Continue", b"103 Hints", b"150 Odd"])
@pytest.mark.parametrize("count", [1, module.MAX_INTERIM_HEADS])
@pytest.mark.parametrize("whole", [True, False])
async def test_interim_heads_are_passed_over(status: bytes, count: int, whole: bool) -> None:
    data = [b"HTTP/1.1 %b\r\nx: y\r\n\r\n" % status] * count + [LENGTH + b"the body"]
    peers = Peers(says(b"".join(data)) if whole else says(*data))
    async with reached(peers) as (_, upstream):
        for _ in range(2):
            answer = await upstream.send(call())
            assert (answer.status, await read(answer)) == (200, b"the body")
    assert len(set(peers.seen)) == 1


async def test_interim_heads_without_end_are_broken() -> None:
    data = b"HTTP/1.1 100 Continue\r\n\r\n" * (module.MAX_INTERIM_HEADS + 1)
    async with reached(says(data + LENGTH + b"the body")) as (_, upstream):
        with pytest.raises(BackendBroken):
            await upstream.send(call())


# ---------------------------------------------------------------- bodies

WHOLE = {
    "length": LENGTH + b"the body",
    "chunks": CHUNKED + chunk(b"the ") + chunk(b"body") + b"0\r\n\r\n",
    "trailer": CHUNKED + chunk(b"the body") + b"0\r\nx: y\r\n\r\n",
    "extension": CHUNKED + b"8;a=b\r\nthe body\r\n0\r\n\r\n",
    "close": CLOSE + b"the body",
}
KEPT = {"length", "chunks", "trailer", "extension"}
BODY = pytest.mark.parametrize("name", WHOLE)


async def ends(exchange: Exchange) -> None:
    exchange.writer.close()


def cut_into(data: bytes, size: int, then: Script) -> Script:
    async def say(exchange: Exchange) -> None:
        for at in range(0, len(data), size):
            await exchange.send(data[at : at + size])
            await turns(2)
        await then(exchange)

    return say


async def nothing_more(_: Exchange) -> None: ...


async def poured(answer: Answer) -> bytes:
    """All of an answer, told to a sink."""
    told = Told()
    answer.pour(told)
    await until(lambda: told.over, what="the end of the answer")
    assert told.whole
    return bytes(told.payload)


@BODY
@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("reads", [read, poured])
async def test_body_is_read_however_it_is_framed_and_cut(
    name: str, size: int, reads: Callable[[Answer], Awaitable[bytes]]
) -> None:
    peers = Peers(cut_into(WHOLE[name], size, nothing_more if name in KEPT else ends))
    async with reached(peers) as (_, upstream):
        for _ in range(2):
            answer = await upstream.send(call())
            assert await reads(answer) == b"the body"
            assert answer.ended
    assert len(set(peers.seen)) == (1 if name in KEPT else 2)


async def test_answer_gives_what_has_come_and_waits_for_no_more() -> None:
    script, more = step_by_step(CHUNKED + chunk(b"first"), chunk(b"second") + chunk(b"third"))
    async with reached(script) as (_, upstream):
        answer = await begun(upstream, more)
        assert await answer.read() == b"first"
        assert answer.take() == b""
        reading = asyncio.ensure_future(answer.read())
        await more()
        assert await reading == b"secondthird"
        assert not answer.ended
        answer.close()


async def test_reader_that_is_cancelled_loses_nothing() -> None:
    script, more = step_by_step(CHUNKED, chunk(b"word"))
    async with reached(script) as (_, upstream):
        answer = await begun(upstream, more)
        reading = asyncio.ensure_future(answer.read())
        await turns()
        reading.cancel()
        await asyncio.wait({reading})
        await more()
        assert await answer.read() == b"word"
        answer.close()


async def test_what_came_before_an_answer_broke_is_read_before_the_error() -> None:
    async with reached(says(CHUNKED + chunk(b"good") + b"zz\r\n")) as (_, upstream):
        answer = await upstream.send(call())
        assert await answer.read() == b"good"
        for _ in range(2):
            with pytest.raises(BackendBroken, match="framing"):
                await answer.read()
        answer.close()
        with pytest.raises(BackendBroken, match="framing"):
            await answer.read()
        assert not answer.ended


# ---------------------------------------------------------------- sinks


async def test_whole_chunks_are_poured_with_the_very_bytes_that_came() -> None:
    script, more = step_by_step(CHUNKED, chunk(b"one"), chunk(b"two") + chunk(b"three"), chunk(b"four") + b"0\r\n\r\n")
    async with reached(script) as (_, upstream):
        sending = asyncio.ensure_future(upstream.send(call()))
        await more()
        answer, told = await sending, Told()
        answer.pour(told)
        for payload in (b"one", b"onetwothree", b"onetwothreefour"):
            await more()
            await until(partial(operator.eq, told.payload, payload), what="the next piece")
        assert told.whole and answer.ended
    assert told.framed == [chunk(b"one"), chunk(b"two") + chunk(b"three"), chunk(b"four")]


async def test_payload_that_looks_like_a_whole_chunk_is_none() -> None:
    script, more = step_by_step(CHUNKED + b"a\r\n", chunk(b"inner"), b"\r\n0\r\n\r\n")
    async with reached(script) as (_, upstream):
        sending = asyncio.ensure_future(upstream.send(call()))
        await more()
        answer, told = await sending, Told()
        answer.pour(told)
        await more()
        await until(lambda: told.payload, what="the payload")
        await more()
        await until(lambda: told.over, what="the end")
    assert (told.framed, told.payload, told.whole) == ([b""], chunk(b"inner"), True)


async def test_sink_is_told_of_no_chunk_that_does_not_end_where_its_size_says() -> None:
    script, more = step_by_step(CHUNKED, b"4\r\nwordXX")
    async with reached(script) as (_, upstream):
        sending = asyncio.ensure_future(upstream.send(call()))
        await more()
        answer, told = await sending, Told()
        answer.pour(told)
        await more()
        await until(lambda: told.over, what="the end")
    assert set(told.framed) <= {b""}
    assert isinstance(told.error, BackendBroken) and "framing is broken" in str(told.error)


async def test_answer_that_is_poured_keeps_no_head() -> None:
    async with reached(says(CHUNKED + chunk(b"one"))) as (_, upstream):
        answer = await upstream.send(call())
        before = list(answer.fields)
        answer.pour(Told())
        assert (len(before), answer.fields) == (1, [])
        answer.close()


async def test_sink_is_told_at_once_what_has_come_before() -> None:
    async with reached(says(WHOLE["chunks"])) as (_, upstream):
        answer, told = await upstream.send(call()), Told()
        await until(lambda: upstream._kept, what="the end of the answer")
        answer.pour(told)
        assert (told.framed, told.payload, told.whole) == ([b""], b"the body", True)


async def test_sink_is_told_at_once_that_an_answer_has_broken_before() -> None:
    async with reached(says(CHUNKED + chunk(b"good") + b"zz\r\n")) as (_, upstream):
        answer, told = await upstream.send(call()), Told()
        await until(lambda: not upstream._open, what="the end of the connection")
        answer.pour(told)
        assert (bytes(told.payload), type(told.error)) == (b"good", BackendBroken)


@pytest.mark.parametrize("ending", ["reset", "close", "framing"])
async def test_sink_is_told_that_an_answer_breaks(ending: str) -> None:
    async def end(exchange: Exchange) -> None:
        if ending == "framing":
            await exchange.send(b"5\r\nwords")
            await exchange.send(b"!\r\n")
            await exchange.gone()
        elif ending == "reset":
            exchange.reset()
        exchange.writer.close()

    script, more = step_by_step(CHUNKED, chunk(b"word"), then=end)
    async with reached(script) as (_, upstream):
        sending = asyncio.ensure_future(upstream.send(call()))
        await more()
        answer, told = await sending, Told()
        answer.pour(told)
        await more()
        await until(lambda: told.over, what="the end")
    assert told.payload in (b"word", b"wordwords")
    assert isinstance(told.error, BackendBroken) and "broke off" in told.error.message


@pytest.mark.parametrize(
    ("head", "data"),
    [
        (CHUNKED, chunk(b"the body")),
        (CHUNKED, chunk(b"the body") + b"0\r\n\r\n"),
        (CHUNKED, chunk(b"the body") + b"zz\r\n"),
        (LENGTH, b"the body"),
        (CLOSE, b"the body"),
    ],
)
@pytest.mark.usefixtures("_idle_for_ever")
async def test_sink_that_closes_its_answer_is_told_nothing_more(head: bytes, data: bytes) -> None:
    script, more = step_by_step(head, data)
    async with reached(script) as (_, upstream):
        answer = await begun(upstream, more)
        told = Told(answer)
        answer.pour(told)
        await more()
        await until(lambda: not upstream._open, what="the end of the connection")
        answer.close()
    assert (told.payload, told.over, answer.ended) == (b"the body", False, False)


async def test_sink_that_closes_its_answer_when_it_is_told_what_came_before_is_told_nothing_more() -> None:
    async with reached(says(WHOLE["chunks"])) as (_, upstream):
        answer = await upstream.send(call())
        told = Told(answer)
        await until(lambda: upstream._kept, what="the end of the answer")
        answer.pour(told)
    assert (told.payload, told.over) == (b"the body", False)


async def test_closed_answer_closes_its_connection_and_wakes_its_reader() -> None:
    script, more = step_by_step(CHUNKED)
    async with reached(script) as (engine, upstream):
        answer = await begun(upstream, more)
        reading = asyncio.ensure_future(answer.read())
        await turns()
        answer.close()
        answer.close()
        with pytest.raises(BackendBroken, match="given up"):
            await reading
        await until(lambda: not engine._connections and not upstream._open, what="the end of the connection")


# ---------------------------------------------------------------- slow readers


async def flood(exchange: Exchange) -> None:
    """Far more than any kernel holds, and the end."""
    await exchange.stream_head()
    for _ in range(256):
        await exchange.chunk(b"x" * 65536)
    await exchange.end()


def unread_bytes(answer: Answer) -> int:
    return answer._size_bytes


async def still(answer: Answer) -> None:
    """Wait until nothing more comes of it."""
    seen = -1
    while seen != unread_bytes(answer):
        seen = unread_bytes(answer)
        await turns(50)


async def test_answer_that_nobody_takes_is_not_read_on_and_nothing_of_it_is_lost() -> None:
    peers = Peers(flood, plain)
    async with reached(peers) as (_, upstream):
        answer = await upstream.send(call())
        await until(lambda: unread_bytes(answer) > READ_AHEAD_BYTES, what="the read-ahead")
        await still(answer)
        assert unread_bytes(answer) <= READ_AHEAD_BYTES + ONE_READ_BYTES
        assert len(await read(answer)) == 256 * 65536
        assert b"hello" in await read(await upstream.send(call()))
    assert len(set(peers.seen)) == 1, "the connection that was paused is kept, and reads again"


async def test_sink_that_is_full_pauses_its_answer() -> None:
    async with reached(flood) as (_, upstream):
        answer, told = await upstream.send(call()), Told()
        answer.pause()
        answer.pour(told)
        seen = len(told.payload)
        await turns(200)
        assert len(told.payload) <= seen + ONE_READ_BYTES
        answer.resume()
        await until(lambda: told.whole, what="the end")
        assert len(told.payload) == 256 * 65536


async def test_answer_that_is_whole_steers_its_connection_no_more() -> None:
    """Another call's answer may come on it."""
    peers = Peers(plain)
    async with reached(peers) as (_, upstream), asyncio.timeout(10):
        first = await upstream.send(call())
        await until(lambda: upstream._kept, what="its end")
        first.pause()
        second = await upstream.send(call())
        first.close()
        assert b"hello" in await read(second)
    assert len(set(peers.seen)) == 1


async def test_answer_that_is_paused_and_taken_stays_paused() -> None:
    async with reached(flood) as (_, upstream):
        answer = await upstream.send(call())
        await until(lambda: unread_bytes(answer) > READ_AHEAD_BYTES, what="the read-ahead")
        answer.pause()
        answer.take()
        await turns(200)
        assert unread_bytes(answer) == 0
        answer.resume()
        await until(lambda: unread_bytes(answer), what="more")
        answer.close()


async def test_connection_whose_answer_ends_while_it_is_paused_is_kept_and_reads_again() -> None:
    class Pausing(Told):
        def came(self, framed: bytes, payload: bytes) -> None:
            answer.pause()
            super().came(framed, payload)

    script, more = step_by_step(CHUNKED, chunk(b"word") + b"0\r\n\r\n", then=nothing_more)
    peers = Peers(script, plain)
    async with reached(peers) as (_, upstream):
        sending = asyncio.ensure_future(upstream.send(call()))
        await more()
        answer, told = await sending, Pausing()
        answer.pour(told)
        await more()
        await until(lambda: told.whole, what="the end")
        async with asyncio.timeout(10):
            assert b"hello" in await read(await upstream.send(call()))
    assert len(set(peers.seen)) == 1


# ---------------------------------------------------------------- large requests

LARGE = bytes(range(256)) * (8 * WRITE_BYTES // 256)


def large_call() -> Call:
    return call(body=LARGE)


async def test_large_body_arrives_as_it_is() -> None:
    peers = Peers(plain)
    async with reached(peers) as (engine, upstream):
        for _ in range(2):
            await read(await upstream.send(large_call()))
        assert [each.body == LARGE for each in engine.requests] == [True, True]
    assert len(set(peers.seen)) == 1


async def serve_unread(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")


async def test_large_body_is_written_as_fast_as_it_is_read() -> None:
    """What is not read waits where it was, in one piece."""
    async with raw_server(serve_unread) as upstream:
        sending = asyncio.ensure_future(upstream.send(large_call()))
        await until(lambda: upstream._open, what="the connection")
        (connection,) = upstream._open
        await until(lambda: connection._full, what="back-pressure")
        await turns(50)
        assert connection.transport.get_write_buffer_size() <= WRITE_BYTES
        sending.cancel()
        await until(lambda: not upstream._open, what="the end of the connection")


async def test_others_have_their_turn_while_a_large_body_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WRITE_BYTES", 1024)
    written: list[int] = []

    async with reached() as (_, upstream):
        await read(await upstream.send(call()))
        (connection,) = upstream._kept
        sending = asyncio.ensure_future(upstream.send(call(body=b"x" * 64 * 1024)))
        while not written or connection._rest is not None:
            await turns(1)
            written.append(len(connection._rest or b""))
        await read(await sending)
    assert len(written) >= 63, "it was written without a pause"


@pytest.mark.parametrize("keeps_reading", [True, False])
@pytest.mark.usefixtures("_idle_for_ever")
async def test_answer_that_comes_before_the_request_is_sent_is_given_and_its_connection_is_not_kept(
    keeps_reading: bool,
) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(LENGTH + b"too long")
        while keeps_reading and await reader.read(65536):
            pass

    async with raw_server(refuse) as upstream:
        async with asyncio.timeout(10):
            assert await read(await upstream.send(large_call())) == b"too long"
        assert not upstream._kept
        await until(lambda: not upstream._open, what="the end of the connection")


async def test_engine_that_answers_while_it_still_reads_gets_the_whole_request() -> None:
    size = len(large_call().head) + len(LARGE)
    got = 0

    async def answer_and_read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal got
        writer.write(CHUNKED + chunk(b"begun"))
        while got < size:
            got += len(await reader.read(65536))
        writer.write(chunk(b"done") + b"0\r\n\r\n")

    async with raw_server(answer_and_read) as upstream, asyncio.timeout(10):
        answer = await upstream.send(large_call())
        assert await read(answer) == b"begundone"
    assert got == size


async def test_large_request_whose_engine_goes_is_broken() -> None:
    async def leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.abort()

    async with raw_server(leave) as upstream, asyncio.timeout(10):
        with pytest.raises(BackendBroken):
            await upstream.send(large_call())


# ---------------------------------------------------------------- a transport that goes on


async def test_bytes_that_come_after_the_connection_was_given_up_are_nobodys() -> None:
    script, more = step_by_step(CHUNKED)
    async with reached(script) as (_, upstream):
        sending = asyncio.ensure_future(upstream.send(call()))
        await more()
        answer, told = await sending, Told()
        answer.pour(told)
        (connection,) = upstream._open
        answer.close()
        connection.data_received(chunk(b"word"))
        connection.data_received(EMPTY)
        connection.eof_received()
        answer.pause()
        answer.resume()
        assert (told.payload, told.over) == (b"", False)


async def test_answer_that_comes_after_everything_was_closed_is_nobodys() -> None:
    async with reached(gone) as (_, upstream):
        sending = asyncio.ensure_future(upstream.send(call()))
        await until(lambda: upstream._open, what="the connection")
        (connection,) = upstream._open
        await until(lambda: connection._waiter, what="the request")
        await upstream.close()
        connection.data_received(EMPTY)
        with pytest.raises(BackendBroken):
            await sending
        assert not upstream._kept

"""What one client may take of the server of the clients' port, and what it is told who takes more."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from fakes.leaping import leaping
from fakes.raw import RawClient, request
from fakes.serving import Served, served
from fakes.until import turns, until

from proxy.closing import CloseReason
from proxy.errors import InvalidRequest
from proxy.wire.arrivals import ConnectionRules
from proxy.wire.downstream import Downstream, Reply
from proxy.wire.request import Request

GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
# Limits are looked after four times in this.
QUICK_S = 0.1


async def reading(asked: Request) -> Reply:
    """Reads the whole body, and says how long it was; who breaks it is told so."""
    size = 0
    try:
        while piece := await asked.incoming.more():
            size += len(piece)
    except InvalidRequest:
        return Reply(400, [], b"broken")
    return Reply(200, [], b"%d" % size)


async def never(_: Request) -> Reply:
    """Waits for the client to leave."""
    await asyncio.Event().wait()
    raise AssertionError


@contextlib.asynccontextmanager
async def client_of(door: Any = reading, **rules: Any) -> AsyncIterator[tuple[RawClient, Served]]:
    async with served(door, **rules) as server, RawClient(server.port) as client:
        yield client, server


async def require_refused(client: RawClient, status: int, code: str) -> None:
    """An error of ours as the last that is said."""
    said = await client.answer()
    error = orjson.loads(said.body)["error"]
    assert (said.status, error["code"], said.header("connection")) == (status, code, "close")
    assert await client.rest() == b""


# ---------------------------------------------------------------- what is no request

MALFORMED = {
    "words": b"how do you do\r\n\r\n",
    "method": b"G\x00T / HTTP/1.1\r\nhost: x\r\n\r\n",
    "unknown method": b"FOO / HTTP/1.1\r\nhost: x\r\n\r\n",
    "target": b"GET a HTTP/1.1\r\nhost: x\r\n\r\n",
    "version": b"GET / HTTP/1.2\r\n\r\n",
    "preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "bare LF": b"GET / HTTP/1.1\nhost: x\n\n",
    "folded": b"GET / HTTP/1.1\r\nhost: x\r\na: b\r\n c\r\n\r\n",
    "space before the colon": b"GET / HTTP/1.1\r\nhost: x\r\na : b\r\n\r\n",
    "control character": b"GET / HTTP/1.1\r\nhost: x\r\na: b\x01\r\n\r\n",
    "no name": b"GET / HTTP/1.1\r\nhost: x\r\n: b\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 1\r\n\r\nx",
    "signed length": b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: +1\r\n\r\nx",
    "length and chunks": b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\nx",
    "chunks and length": b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\ncontent-length: 1\r\n\r\nx",
    "chunks in HTTP/1.0": b"POST / HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "no chunks": b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip\r\n\r\n",
    "chunks in quotes": b'POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: "chunked"\r\n\r\n0\r\n\r\n',
    "chunks twice": b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "chunks and more": b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\ntransfer-encoding: x\r\n\r\n0\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
}


@pytest.mark.parametrize("sent", MALFORMED.values(), ids=MALFORMED)
@pytest.mark.parametrize("ahead", [b"", GET], ids=["alone", "behind a request"])
async def test_what_is_no_request_is_answered_400_behind_what_was_one(sent: bytes, ahead: bytes) -> None:
    async with client_of() as (client, server):
        await client.send(ahead + sent + GET)
        if ahead:
            assert (await client.answer()).body == b"0"
        await require_refused(client, 400, "invalid_request")
        assert server.book.refusals == ["invalid_request"]
        assert server.book.lines[0][:2] == ("info", "request_refused")


@pytest.mark.parametrize("version", ["0.9", "2.0"])
async def test_other_versions_are_refused(version: str) -> None:
    async with client_of() as (client, _):
        await client.send(request("/", version=version))
        await require_refused(client, 505, "http_version_not_supported")


@pytest.mark.parametrize("coding", ["gzip, chunked", "identity,\tChunked", "gzip\r\ntransfer-encoding: chunked"])
async def test_other_transfer_codings_are_refused(coding: str) -> None:
    async with client_of() as (client, _):
        await client.send(f"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: {coding}\r\n\r\n0\r\n\r\n".encode())
        await require_refused(client, 501, "transfer_coding_unsupported")


async def test_refusal_waits_for_the_answers_before_it() -> None:
    async def slow(asked: Request) -> Reply:
        await go.wait()
        return await reading(asked)

    go = asyncio.Event()
    async with client_of(slow) as (client, server):
        await client.send(GET + b"nonsense\r\n\r\n")
        await until(server.front.is_busy, what="the request")
        await turns(20)
        go.set()
        assert (await client.answer()).status == 200
        await require_refused(client, 400, "invalid_request")


BROKEN = {"size": b"3\r\nabc\r\nxyz\r\n", "end of a chunk": b"3\r\nabcdef\r\n", "length of a size": b"f" * 20 + b"\r\n"}


@pytest.mark.parametrize("sent", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("at_once", [True, False])
async def test_reader_of_a_body_is_told_at_once_that_its_framing_broke(sent: bytes, at_once: bool) -> None:
    head = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
    async with client_of() as (client, server):
        await client.send(head + (sent if at_once else b""))
        if not at_once:
            await until(server.front.is_busy, what="the request")
            await client.send(sent)
        said = await client.answer()
        assert (said.body, said.header("connection"), await client.rest()) == (b"broken", "close", b"")
        assert server.book.refusals == []


ENDLESS = {
    "trailers": b"0\r\n" + b"a: b\r\n" * 2000,
    "one trailer": b"0\r\na: " + b"b" * 9000,
    "extension": b"1;" + b"a" * 9000,
}


@pytest.mark.parametrize("sent", ENDLESS.values(), ids=ENDLESS)
async def test_lines_around_a_body_have_the_limit_of_a_head(sent: bytes) -> None:
    async with client_of(max_head_bytes=4096) as (client, server):
        await client.send(b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
        await until(server.front.is_busy, what="the request")
        for at in range(0, len(sent), 1000):
            with contextlib.suppress(ConnectionError):
                await client.send(sent[at : at + 1000])
                await turns(3)
        assert (await client.answer()).body == b"broken"


# ---------------------------------------------------------------- heads: size


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nhost: x\r\na: " + b"b" * 900 + b"\r\n\r\n",
        b"GET /" + b"a" * 900 + b" HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\n" + b"a: b\r\n" * 11 + b"\r\n",
    ],
    ids=["bytes", "target", "headers"],
)
@pytest.mark.parametrize("cut", [10_000, 100, 1])
@pytest.mark.parametrize("ahead", [b"", GET], ids=["alone", "behind a request"])
async def test_head_over_its_limits_is_answered_431(sent: bytes, cut: int, ahead: bytes) -> None:
    async with client_of(max_head_bytes=512, max_headers=10) as (client, _):
        whole = ahead + sent + GET
        for at in range(0, len(whole), cut):
            await client.send(whole[at : at + cut])
            await turns(1 if cut == 1 else 3)
        if ahead:
            assert (await client.answer()).status == 200
        await require_refused(client, 431, "head_too_large")


@pytest.mark.parametrize("cut", [10_000, 100, 1])
async def test_head_just_within_its_limits_is_served(cut: int) -> None:
    start = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2000\r\na: "
    head = start + b"b" * (512 - len(start) - 4) + b"\r\n\r\n"
    async with client_of(max_head_bytes=512, max_headers=3) as (client, _):
        for _ in range(2):
            whole = head + b"x" * 2000
            for at in range(0, len(whole), cut):
                await client.send(whole[at : at + cut])
                await turns(1)
            assert (await client.answer()).body == b"2000"


async def test_endless_head_is_refused_though_it_does_not_end() -> None:
    async with client_of(max_head_bytes=512) as (client, _):
        await client.send(b"GET / HTTP/1.1\r\nhost: x\r\na: " + b"b" * 1000)
        await require_refused(client, 431, "head_too_large")


async def test_limits_that_are_adopted_hold_for_connections_that_are_open() -> None:
    async with client_of() as (client, server):
        await client.send(GET)
        await client.answer()
        server.front.adopt(ConnectionRules(max_headers=1))
        await client.send(b"GET / HTTP/1.1\r\nhost: x\r\na: b\r\nc: d\r\n\r\n")
        await require_refused(client, 431, "head_too_large")


# ---------------------------------------------------------------- time


async def test_connection_that_says_nothing_is_closed_and_counted() -> None:
    async with client_of(head_timeout_s=QUICK_S) as (client, server):
        assert await client.rest() == b""
        assert server.book.closings == [CloseReason.SILENT]


@pytest.mark.parametrize("ahead", [b"", GET], ids=["first", "second"])
@pytest.mark.parametrize(
    "sent", [b"G", GET[:-1], b"\r\nG"], ids=["a byte", "all but one", "a byte behind an empty line"]
)
@leaping
async def test_head_that_does_not_end_is_answered_408(ahead: bytes, sent: bytes) -> None:
    async with client_of(head_timeout_s=QUICK_S) as (client, server):
        if ahead:
            await client.send(ahead)
            assert (await client.answer()).status == 200
        await client.send(sent)
        await require_refused(client, 408, "head_timeout")
        assert server.book.closings == []


@leaping
async def test_half_a_head_behind_a_request_under_way_does_not_disturb_it() -> None:
    async def slow(_: Request) -> Reply:
        await asyncio.sleep(QUICK_S * 3)  # sleeps: longer than the limit of what is behind
        return Reply(200, [], b"whole")

    async with client_of(slow, head_timeout_s=QUICK_S) as (client, _):
        await client.send(GET + GET[:-1])
        assert (await client.answer()).body == b"whole"
        await require_refused(client, 408, "head_timeout")


async def test_idle_connection_is_closed_and_counted() -> None:
    async with client_of(keepalive_s=QUICK_S) as (client, server):
        await client.send(GET)
        await client.answer()
        assert await client.rest() == b""
        assert server.book.closings == [CloseReason.IDLE]


@leaping
async def test_neither_heads_nor_bodies_nor_answers_are_idle() -> None:
    async with client_of(keepalive_s=QUICK_S) as (client, server):
        whole = request("/", b"hello")
        for _ in range(2):
            for piece in (whole[:10], whole[10:-2], whole[-2:]):
                await client.send(piece)
                await asyncio.sleep(QUICK_S / 2)  # sleeps: together longer than the limit that must not apply
            assert (await client.answer()).body == b"5"
        assert server.book.closings == []


@pytest.mark.parametrize("whole", [True, False], ids=["reply", "stream"])
async def test_client_that_takes_nothing_of_its_answer_is_dropped_and_counted(whole: bool) -> None:
    async def much(asked: Request) -> Reply | None:
        if whole:
            return Reply(200, [], b"x" * (24 << 20))
        down = Downstream(asked)
        down.begin(200, [], length=None)
        while True:
            down.write(b"x" * 65536)
            await down.drain()

    async with client_of(much, unread_s=QUICK_S) as (client, server):
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await client.send(GET)
        await until(lambda: server.book.closings == [CloseReason.UNREAD], what="the client dropped")
        await until(lambda: not server.front.connections, what="its connection gone")


async def test_client_that_is_dropped_twice_is_counted_once() -> None:
    async def twice(asked: Request) -> Reply:
        asked.client.drop(CloseReason.UNREAD)
        asked.client.drop(CloseReason.FLOODED)
        return Reply(200, [], b"nobody")

    async with client_of(twice) as (client, server):
        await client.send(GET)
        assert await client.rest() == b""
        assert server.book.closings == [CloseReason.UNREAD]


@leaping
async def test_client_that_takes_its_answer_bit_by_bit_is_not_dropped() -> None:
    async def much(_: Request) -> Reply:
        return Reply(200, [], b"x" * (24 << 20))

    async with client_of(much, unread_s=0.4) as (client, server):
        taking = client.writer.transport
        await client.send(GET)
        taken = 0
        while taken < 24 << 20:
            taking.resume_reading()  # type: ignore[attr-defined]
            taken += len(await client.reader.read(4 << 20))
            taking.pause_reading()  # type: ignore[attr-defined]
            await asyncio.sleep(0.1)  # sleeps: a slow reader
            assert server.book.closings == []


# ---------------------------------------------------------------- floods


@pytest.mark.parametrize(
    "behind",
    [
        request(body=b"x" * 3_000_000),
        request(body=b"x" * 100_000),
        request(body=b"x" * 20_000) * 5,
        b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 30_000,
        GET * 40,
    ],
    ids=["one huge body", "one large body", "several", "many chunks", "dozens"],
)
async def test_client_that_sends_much_behind_an_unanswered_request_is_dropped_and_counted(behind: bytes) -> None:
    async with client_of(never, unread_s=QUICK_S) as (client, server):
        await client.send(GET)
        await until(server.front.is_busy, what="the request")
        with contextlib.suppress(ConnectionError):
            await client.send(behind)
        await until(lambda: server.book.closings == [CloseReason.FLOODED], what="the client dropped")
        await until(lambda: not server.front.connections, what="its connection gone")


async def test_body_that_nobody_takes_stops_the_reading() -> None:
    async with client_of(never) as (client, server):
        await client.send(GET)
        await until(server.front.is_busy, what="the request")
        client.writer.write(request(body=b"x" * 8_000_000))
        [connection] = server.front.connections
        await until(lambda: connection._paused, what="a pause")
        await turns(50)
        behind = connection._queue[-1]
        assert isinstance(behind, Request)
        assert behind.incoming._waiting_bytes < 1_000_000


@leaping
async def test_large_requests_one_after_the_other_are_no_flood() -> None:
    async with client_of(head_timeout_s=QUICK_S) as (client, server):
        for _ in range(5):
            await client.send(request("/", b"x" * 1_000_000))
            assert (await client.answer()).body == b"1000000"
        assert server.book.closings == []


@leaping
async def test_client_that_sends_on_behind_the_end_of_its_answer_is_no_flood() -> None:
    async def slow(asked: Request) -> None:
        down = Downstream(asked)
        down.begin(200, [], length=0)
        down.end()
        await asyncio.sleep(QUICK_S * 3)  # sleeps: over several looks

    async with client_of(slow, head_timeout_s=QUICK_S) as (client, server):
        await client.send(GET)
        await client.answer()
        await client.send(request("/", b"x" * 200_000))
        assert (await client.answer()).status == 200
        assert server.book.closings == []


# ---------------------------------------------------------------- connections


async def test_connection_over_the_limit_is_told_so_and_its_place_is_free_when_another_ends() -> None:
    async with client_of(max_connections=1) as (first, server):
        await first.send(GET)
        await first.answer()
        async with RawClient(server.port) as second:
            await second.send(GET)
            await require_refused(second, 503, "too_many_connections")
        first.leave()
        await until(lambda: not server.front.connections, what="its end")
        async with RawClient(server.port) as third:
            await third.send(GET)
            assert (await third.answer()).status == 200


# ---------------------------------------------------------------- what is no wrong


async def test_client_that_takes_now_and_then_is_not_unread_though_the_same_waits_at_each_look() -> None:
    async with client_of(never) as (_, server):
        await until(lambda: server.front.connections, what="the connection")
        connection = next(iter(server.front.connections))
        real, still = connection.transport, SimpleNamespace(get_write_buffer_size=lambda: 1000, get_extra_info=str)
        connection.transport = still  # type: ignore[assignment]
        assert [connection.unread_s(now_s) for now_s in (10.0, 15.0)] == [0.0, 5.0]
        connection.resume_writing()
        assert [connection.unread_s(now_s) for now_s in (20.0, 21.0)] == [0.0, 1.0]
        connection.transport = real


@pytest.mark.parametrize("lines", [b"\r\n", b"\r\n\r\n\r\n"])
@leaping
async def test_empty_lines_behind_a_request_begin_none(lines: bytes) -> None:
    """Taken for a head they would be answered 408 once its time is over: to whoever asks next on the connection."""
    async with client_of(head_timeout_s=QUICK_S) as (client, server):
        await client.send(GET)
        assert (await client.answer()).status == 200
        await client.send(lines)
        await turns(20)
        assert not server.front.heads
        assert len(server.front.idle) == 1
        await client.send(GET)
        assert (await client.answer()).status == 200


async def test_refusal_of_a_head_request_has_no_body() -> None:
    async with client_of(max_headers=2) as (client, _):
        await client.send(b"HEAD / HTTP/1.1\r\nhost: x\r\na: 1\r\nb: 2\r\nc: 3\r\n\r\n")
        said = await client.answer(bodiless=True)
        assert (said.status, await client.rest()) == (431, b"")

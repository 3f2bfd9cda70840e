"""The server of the clients' port: one answer after the other, byte for byte, and clients that leave."""

import asyncio
import socket
from collections.abc import Awaitable, Callable

import orjson
import pytest
from fakes.leaping import leaping
from fakes.raw import RawClient, request
from fakes.serving import served
from fakes.until import turns, until

from proxy.errors import BackendBroken, UnknownRoute
from proxy.model import Dialect
from proxy.protocol.fields import Fields
from proxy.wire.downstream import Downstream, Reply, error_reply
from proxy.wire.request import Request

# What would differ from day to day is told by the door.
PLAIN: Fields = [(b"Date", b"today")]
GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


def answer(body: bytes, *lines: bytes, version: bytes = b"1.1", status: bytes = b"200 OK") -> bytes:
    """The bytes of an answer of `echo`."""
    told = b"".join(line + b"\r\n" for line in (*lines,))
    head = b"HTTP/%b %b\r\nDate: today\r\nContent-Length: %d\r\n" % (version, status, len(body))
    return head + told + b"Server: crossover\r\n\r\n" + body


async def echo(asked: Request) -> Reply:
    """Says what it was asked, with the whole body."""
    pieces = [piece async for piece in bodies(asked)]
    return Reply(200, list(PLAIN), f"{asked.method} {asked.target} ".encode() + b"".join(pieces))


async def bodies(asked: Request):  # type: ignore[no-untyped-def]
    while piece := await asked.incoming.more():
        yield piece


LAST = b"GET /last HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"


async def said_to(sent: bytes, door: Callable[[Request], Awaitable[Reply | None]] = echo) -> bytes:
    """All that a connection says to this, whether it ends by itself or goes on."""
    said: list[bytes] = []
    async with served(door) as server:
        for whole in (sent + LAST, LAST):
            async with RawClient(server.port) as client:
                await client.send(whole)
                said.append(await client.rest())
    return said[0].removesuffix(said[1])


class Held:
    """A door that is told which requests came, and answers each when it is let."""

    def __init__(self) -> None:
        self.came: list[Request] = []
        self.cancelled: list[Request] = []
        self.go = asyncio.Event()

    async def __call__(self, asked: Request) -> Reply:
        self.came.append(asked)
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled.append(asked)
            raise
        return Reply(200, list(PLAIN), asked.target.encode())


# ---------------------------------------------------------------- answers


async def test_answer_is_this() -> None:
    assert await said_to(GET) == answer(b"GET / ")


async def test_body_with_a_length_is_read() -> None:
    assert await said_to(request("/a", b"hello")) == answer(b"POST /a hello")


async def test_body_in_chunks_is_read_without_its_trailers() -> None:
    head = b"POST /a HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
    sent = head + b"3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\nx-t: 1\r\n\r\n"
    assert await said_to(sent + GET) == answer(b"POST /a hello") + answer(b"GET / ")


async def test_trailers_are_no_fields_of_the_next_request() -> None:
    held = Held()
    sent = b"POST /a HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx-t: 1\r\n\r\n"
    held.go.set()
    await said_to(sent + GET, held)
    host = (b"host", b"x")
    assert [each.fields for each in held.came[:2]] == [[host, (b"transfer-encoding", b"chunked")], [host]]


async def test_request_is_told_as_it_came() -> None:
    held = Held()
    held.go.set()
    await said_to(
        b"PUT /%C3?a=b HTTP/1.1\r\nhost: x\r\nX-A:  1 \t\r\nx-a: \xe9\r\nEmpty:\r\ncontent-length: 0\r\n\r\n", held
    )
    came = held.came[0]
    assert (came.method, came.target, came.peer, came.http10) == ("PUT", "/%C3?a=b", "127.0.0.1", False)
    sent = [(b"host", b"x"), (b"X-A", b"1"), (b"x-a", b"\xe9"), (b"Empty", b""), (b"content-length", b"0")]
    assert came.fields == sent
    assert (came.by_name[b"x-a"], came.text(b"x-a"), came.text(b"no", "-")) == (b"1, \xe9", "1, \udce9", "-")
    assert (came.incoming.expected, came.incoming.length, came.incoming.ended) == (False, 0, True)


async def test_answers_come_in_the_order_of_the_requests_and_one_at_a_time() -> None:
    held = Held()
    async with served(held) as server, RawClient(server.port) as client:
        await client.send(b"".join(request(f"/{number}", method="GET") for number in range(3)))
        await until(lambda: held.came, what="the first request")
        await turns(20)
        assert len(held.came) == 1
        held.go.set()
        assert [(await client.answer()).body for _ in range(3)] == [b"/0", b"/1", b"/2"]


async def test_connection_is_used_again_and_again() -> None:
    async with served(echo) as server, RawClient(server.port) as client:
        for number in range(5):
            await client.send(request(f"/{number}", b"x" * number))
            said = await client.answer()
            assert (said.body, said.header("connection")) == (f"POST /{number} ".encode() + b"x" * number, None)


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (b"GET / HTTP/1.1\r\nhost: x\r\nconnection: Close\r\n\r\n", answer(b"GET / ", b"Connection: close")),
        (b"GET / HTTP/1.0\r\n\r\n", answer(b"GET / ", version=b"1.0")),
    ],
    ids=["HTTP/1.1 close", "HTTP/1.0"],
)
async def test_connection_ends_where_the_client_wants_no_more_of_it(sent: bytes, told: bytes) -> None:
    async with served(echo) as server, RawClient(server.port) as client:
        await client.send(sent + GET)
        assert await client.rest() == told


async def test_client_of_http_1_0_may_keep_its_connection() -> None:
    sent = b"GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n"
    told = answer(b"GET / ", b"Connection: keep-alive", version=b"1.0")
    assert await said_to(sent * 2) == told * 2


async def test_answer_that_closes_is_the_last() -> None:
    async def last(_: Request) -> Reply:
        return error_reply(UnknownRoute("m"), Dialect.PLAIN, close=True)

    async with served(last) as server, RawClient(server.port) as client:
        await client.send(GET + GET)
        assert (await client.answer()).header("connection") == "close"
        assert await client.rest() == b""


async def test_body_that_nobody_reads_ends_the_connection_behind_the_answer() -> None:
    async def deaf(_: Request) -> Reply:
        return Reply(413, list(PLAIN), b"no")

    told = answer(b"no", b"Connection: close", status=b"413 Request Entity Too Large")
    async with served(deaf) as server, RawClient(server.port) as client:
        await client.send(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 10000000\r\n\r\n" + b"x" * 1000)
        assert await client.reader.readexactly(len(told)) == told
        await client.send(b"x" * 2_000_000)  # the answer is not taken back by what still comes
        assert await client.rest() == b""


async def test_body_that_has_come_and_is_not_read_costs_nothing() -> None:
    async def deaf(asked: Request) -> Reply:
        return Reply(200, list(PLAIN), asked.target.encode())

    async with served(deaf) as server, RawClient(server.port) as client:
        for number in range(3):
            await client.send(request(f"/{number}", b"x" * 100_000))
            said = await client.answer()
            if said.header("connection") == "close":  # it had not come whole
                break
            assert said.body == f"/{number}".encode()


async def test_body_larger_than_what_may_wait_is_read_whole() -> None:
    body = bytes(range(256)) * 8000
    async with served(echo) as server, RawClient(server.port) as client:
        for _ in range(2):
            await client.send(request("/", body))
            assert (await client.answer()).body == b"POST / " + body


async def test_client_that_waits_to_be_asked_for_its_body_is_asked() -> None:
    async with served(echo) as server, RawClient(server.port) as client:
        await client.send(b"POST / HTTP/1.1\r\nhost: x\r\nexpect: 100-Continue\r\ncontent-length: 2\r\n\r\n")
        assert await client.reader.readexactly(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
        await client.send(b"ab")
        said = await client.answer()
        assert (said.body, said.header("connection")) == (b"POST / ab", None)


async def test_client_of_http_1_0_is_not_asked_for_its_body() -> None:
    async with served(echo) as server, RawClient(server.port) as client:
        await client.send(b"POST / HTTP/1.0\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n")
        await turns(20)
        await client.send(b"ab")
        assert (await client.rest()).startswith(b"HTTP/1.0 200")


async def test_stamps_are_on_every_head() -> None:
    async with served(echo, stamps=[(b"x-stamp", b"1")]) as server, RawClient(server.port) as client:
        await client.send(GET + b"no http\r\n\r\n")
        assert [(await client.answer()).header("x-stamp") for _ in range(2)] == ["1", "1"]


# ---------------------------------------------------------------- upgrades

H2C = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n"


@pytest.mark.parametrize("cut", [None, 1, 7, 100], ids=["whole", "bytes", "sevens", "hundreds"])
async def test_offer_of_http_2_is_passed_over_with_its_body(cut: int | None) -> None:
    offered = b"POST /a HTTP/1.1\r\nhost: x\r\n" + H2C + b"content-length: 5\r\n\r\nhello"
    chunked = b"POST /b HTTP/1.1\r\nhost: x\r\n" + H2C + b"transfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"
    sent = offered + b"GET /c HTTP/1.1\r\nhost: x\r\n" + H2C + b"\r\n" + chunked + GET
    bodies_of = (b"POST /a hello", b"GET /c ", b"POST /b hi", b"GET / ")
    async with served(echo) as server, RawClient(server.port) as client:
        for at in range(0, len(sent), cut or len(sent)):
            await client.send(sent[at : at + (cut or len(sent))])
            await turns(2)
        assert [(await client.answer()).body for _ in bodies_of] == list(bodies_of)


@pytest.mark.parametrize(
    "sent",
    [
        b"CONNECT x:1 HTTP/1.1\r\nhost: x:1\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\ncontent-length: 3\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\nconnection: x-upgrade\r\nupgrade: websocket\r\n\r\n",
    ],
    ids=["CONNECT", "websocket", "websocket with a body", "websocket, oddly"],
)
@pytest.mark.parametrize("at_once", [True, False])
async def test_nothing_is_read_behind_a_request_that_would_end_http(sent: bytes, at_once: bool) -> None:
    held = Held()
    held.go.set()
    async with served(held) as server, RawClient(server.port) as client:
        await client.send(sent + (GET if at_once else b""))
        assert (await client.answer()).header("connection") == "close"
        if not at_once:
            await client.send(GET)
        assert (await client.rest(), len(held.came)) == (b"", 1)


# ---------------------------------------------------------------- clients that leave


@pytest.mark.parametrize("reset", [False, True], ids=["FIN", "RST"])
@pytest.mark.parametrize("behind", [b"", GET, request(body=b"x" * 60_000), request(body=b"x" * 400_000)[:-1]])
async def test_leaving_cancels_what_is_done_for_the_client(reset: bool, behind: bytes) -> None:
    held = Held()
    async with served(held, unread_s=0.2) as server, RawClient(server.port) as client:
        client.writer.transport.set_write_buffer_limits(high=1 << 24)
        await client.send(GET)
        await until(lambda: held.came, what="the request")
        await client.send(behind)
        client.leave(reset=reset)
        await until(lambda: held.cancelled, what="its end")
        assert len(held.came) == 1


async def test_leaving_in_the_middle_of_a_body_cancels_its_reader() -> None:
    ended: list[str] = []

    async def reading(asked: Request) -> Reply:
        try:
            return await echo(asked)
        finally:
            ended.append(asked.target)

    async with served(reading) as server, RawClient(server.port) as client:
        await client.send(request("/a", b"x" * 100)[:-1])
        await until(server.front.is_busy, what="the request")
        client.leave()
        await until(lambda: ended == ["/a"], what="its end")


async def test_what_is_written_to_a_client_that_is_gone_is_dropped() -> None:
    async def late(asked: Request) -> Reply:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            down = Downstream(asked)
            down.begin(200, [], length=None)
            down.write(b"x")
            with pytest.raises(ConnectionError):
                await down.drain()
            down.end()
            went.append("whole")
        return Reply(200, [], b"nobody")

    went: list[str] = []
    async with served(late) as server, RawClient(server.port) as client:
        await client.send(GET)
        await until(server.front.is_busy, what="the request")
        client.leave(reset=True)
        await until(lambda: went, what="the end of the handler")


async def test_client_that_takes_no_more_is_told_of_and_waited_for() -> None:
    told: list[str] = []

    async def much(asked: Request) -> None:
        down = Downstream(asked)
        down.begin(200, [], length=None)
        down.on_full, down.on_room = lambda: told.append("full"), lambda: told.append("room")
        while not down.full:
            down.write(b"x" * 10_000)
        await down.drain()
        assert not down.full
        down.end()

    async with served(much) as server, RawClient(server.port) as client:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await client.send(GET)
        await until(lambda: told == ["full"], what="a full connection")
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        assert (await client.answer()).whole
        assert told == ["full", "room"]


async def test_waiting_for_room_ends_with_the_client() -> None:
    ended: list[BaseException] = []

    async def much(asked: Request) -> None:
        down = Downstream(asked)
        down.begin(200, [], length=None)
        while not down.full:
            down.write(b"x" * 10_000)
        down.end()  # its answer is written: it is not cancelled, and has to be told
        try:
            await down.drain()
        except BaseException as error:
            ended.append(error)
            raise

    async with served(much) as server, RawClient(server.port) as client:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await client.send(GET)
        await until(server.front.is_busy, what="the request")
        await turns(20)
        client.leave(reset=True)
        await until(lambda: ended, what="its end")
        assert isinstance(ended[0], ConnectionError)
        assert server.book.refusals == []


# ---------------------------------------------------------------- what nobody caught


async def test_failure_of_the_handler_is_told_logged_and_the_last_word() -> None:
    async def fail(_: Request) -> Reply:
        raise ValueError("a secret")

    async with served(fail) as server, RawClient(server.port) as client:
        await client.send(GET + GET)
        said = await client.answer()
        assert (said.status, orjson.loads(said.body)["error"]["code"]) == (500, "internal_error")
        assert (said.header("connection"), await client.rest()) == ("close", b"")
        assert server.book.refusals == ["internal_error"]
        [(level, event, more)] = server.book.lines
        assert (level, event, type(more["exc_info"])) == ("error", "request_failed", ValueError)


async def test_error_of_ours_that_nobody_caught_keeps_its_status() -> None:
    async def fail(_: Request) -> Reply:
        raise BackendBroken("gone")

    async with served(fail) as server, RawClient(server.port) as client:
        await client.send(GET)
        assert (await client.answer()).status == 502


@pytest.mark.parametrize("error", [ValueError("x"), ConnectionResetError("x"), None], ids=repr)
async def test_answer_that_its_handler_leaves_unfinished_does_not_look_whole(error: Exception | None) -> None:
    async def fail(asked: Request) -> None:
        down = Downstream(asked)
        down.begin(200, [], length=None)
        down.write(b"half")
        if error is not None:
            raise error

    async with served(fail) as server, RawClient(server.port) as client:
        await client.send(GET)
        said = await client.answer()
        assert (said.body, said.whole) == (b"half", False)
        assert server.book.refusals == (["internal_error"] if isinstance(error, ValueError) else [])


async def test_request_that_is_not_answered_at_all_ends_its_connection() -> None:
    async def forget(_: Request) -> None:
        return None

    async with served(forget) as server, RawClient(server.port) as client:
        await client.send(GET + GET)
        assert await client.rest() == b""


# ---------------------------------------------------------------- leaving


async def test_idle_connections_close_when_the_server_leaves_and_busy_ones_after_their_answer() -> None:
    held = Held()
    async with served(held) as server, RawClient(server.port) as busy, RawClient(server.port) as idle:
        held.go.set()
        await idle.send(GET)
        await idle.answer()
        held.go.clear()
        await busy.send(GET)
        await until(server.front.is_busy, what="the request")
        server.front.leave()
        assert await idle.rest() == b""
        held.go.set()
        assert (await busy.answer()).header("connection") == "close"
        assert await busy.rest() == b""


@pytest.mark.parametrize("size", [10, len(GET) + 60], ids=["head", "body"])
async def test_request_that_is_coming_when_the_server_leaves_is_let_come(size: int) -> None:
    sent = request("/", b"hello")
    async with served(echo) as server, RawClient(server.port) as client:
        await client.send(sent[:size])
        await until(lambda: any(each._reader.unfinished_bytes or each.is_busy() for each in server.front.connections))
        server.front.leave()
        await turns()
        await client.send(sent[size:])
        said = await client.answer()
        assert (said.body, said.header("connection")) == (b"POST / hello", "close")


@leaping
async def test_connection_that_has_just_come_has_a_moment_to_begin_when_the_server_leaves() -> None:
    async with served(echo, head_timeout_s=0.2) as server, RawClient(server.port) as one, RawClient(server.port) as two:
        await until(lambda: len(server.front.connections) == 2, what="both connections")
        server.front.leave()
        await one.send(GET)
        assert (await one.answer()).header("connection") == "close"
        assert await two.rest() == b""
        assert server.book.closings == []


async def test_stream_under_way_when_the_server_leaves_is_the_last_on_its_connection() -> None:
    go = asyncio.Event()

    async def stream(asked: Request) -> None:
        down = Downstream(asked)
        down.begin(200, [], length=None)
        down.flush()
        await go.wait()
        down.end()

    async with served(stream) as server, RawClient(server.port) as client:
        await client.send(GET)
        assert (await client.head()).header("connection") is None
        server.front.leave()
        go.set()
        assert await client.rest() == b"0\r\n\r\n"


async def test_close_ends_everything_at_once() -> None:
    held = Held()
    async with served(held) as server, RawClient(server.port) as client:
        await client.send(GET)
        await until(lambda: held.came, what="the request")
        await server.front.close(5.0)
        assert (len(held.cancelled), server.front.connections) == (1, set())
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", server.port), timeout=1)

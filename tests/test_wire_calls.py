"""One call to one backend over real sockets: which connection it takes, and what its failures are called."""

import asyncio
import contextlib
import gc
import os
import socket
import ssl
import struct
from pathlib import Path

import pytest
from fakes.calling import Peers, call, raw_server, reached, read, says
from fakes.certificates import Files
from fakes.engine import Exchange, FakeEngine, Script, plain
from fakes.unfreed import unfreed
from fakes.until import turns, until

from proxy.errors import BackendBroken, BackendUnreachable, ConnectTimeout, StaleConnection, UpstreamError
from proxy.protocol.answer_head import AnswerHead
from proxy.wire import calls as module
from proxy.wire.answer import Answer
from proxy.wire.calls import Upstream
from proxy.wire.connection import VANISHED, WRITE_BYTES, Call, Connection
from proxy.wire.names import Address, Addresses, Names

# So long the loop waits for the other side's goodbye under TLS, before it closes a connection without.
LESS_THAN_SHUTDOWN_S = 15.0
EMPTY = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"


@pytest.fixture
def _idle_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is closed was not closed for being idle."""
    monkeypatch.setattr("proxy.wire.calls.POOL_IDLE_S", 600.0)


async def failure_of(script: Script, *, calls: int = 1) -> UpstreamError:
    """The error that the last of some calls ends with."""
    async with reached(script) as (_, upstream):
        for _ in range(calls - 1):
            await read(await upstream.send(call()))
        with pytest.raises(UpstreamError) as caught:
            await read(await upstream.send(call()))
        return caught.value


# ---------------------------------------------------------------- what is sent


@pytest.mark.parametrize("body", [b"", b"\x00\xff", b"x" * 100_000])
async def test_head_and_body_are_sent_byte_for_byte(body: bytes) -> None:
    asked = call("/v1/models/a%2Fb?x=1&x=2&y", body)
    came = b""

    async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal came
        came = await reader.readexactly(len(asked.head) + len(body))
        writer.write(EMPTY)

    async with raw_server(note) as upstream:
        await read(await upstream.send(asked))
    assert came == asked.head + body


async def test_environment_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setitem(os.environ, name, "http://127.0.0.1:9")
    async with reached() as (engine, upstream):
        await read(await upstream.send(call()))
        assert len(engine.requests) == 1


# ---------------------------------------------------------------- where to


@pytest.mark.parametrize("host", ["::1", "127.0.0.1"])
async def test_both_address_families_are_reached(host: str) -> None:
    async with FakeEngine(host=host) as engine:
        upstream = Upstream(engine.url, connect_s=5)
        assert await read(await upstream.send(call()))
        await upstream.close()


async def test_name_that_stands_for_several_addresses_is_reached_at_one_that_listens() -> None:
    async def both(_: str, port: int) -> Addresses:
        return [Address("::1", port, socket.AF_INET6), Address("127.0.0.1", port, socket.AF_INET)]

    async with FakeEngine(host="127.0.0.1") as engine:
        upstream = Upstream(f"http://engine.test:{engine.port}", connect_s=5, names=Names(both))
        assert await read(await upstream.send(call()))
        await upstream.close()


async def test_refused_connection_is_unreachable() -> None:
    async with FakeEngine() as engine:
        pass
    upstream = Upstream(engine.url, connect_s=5)
    with pytest.raises(BackendUnreachable) as caught:
        await upstream.send(call())
    assert type(caught.value) is BackendUnreachable
    await upstream.close()


@pytest.mark.parametrize("url", ["http://engine.invalid:1", "http://" + "a" * 70 + ".test:1"])
async def test_name_that_does_not_resolve_is_unreachable(url: str) -> None:
    upstream = Upstream(url, connect_s=5)
    with pytest.raises(BackendUnreachable) as caught:
        await upstream.send(call())
    assert "engine" not in caught.value.message
    await upstream.close()


async def hang(*_: object) -> Addresses:
    await asyncio.Event().wait()
    raise AssertionError


async def test_connection_that_is_not_made_in_time_has_a_code_of_its_own() -> None:
    names = Names(hang)
    upstream = Upstream("http://engine.test:1", connect_s=0.01, names=names)
    with pytest.raises(ConnectTimeout) as caught:
        await upstream.send(call())
    told = caught.value
    assert (told.code, told.status, told.reached) == ("connect_timeout", 502, False)
    assert "timeouts.connect_s" in told.message
    await names.close()


async def test_caller_that_leaves_while_it_connects_leaves_nothing_behind() -> None:
    names = Names(hang)
    upstream = Upstream("http://engine.test:1", connect_s=60, names=names)
    waiting = asyncio.create_task(upstream.send(call()))
    await turns()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await names.close()
    assert not upstream._open


# ---------------------------------------------------------------- TLS


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path / "tls")


async def over_tls(files: Files, host: str) -> bytes:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.folder / "tls.crt", files.folder / "tls.key")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ngood")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]

    async def here(_: str, port: int) -> Addresses:
        return [Address("127.0.0.1", port, socket.AF_INET)]

    upstream = Upstream(f"https://{host}:{port}", connect_s=5, names=Names(here))
    try:
        return await read(await upstream.send(call()))
    finally:
        await upstream.close()
        server.close()


async def test_engine_whose_certificate_is_trusted_is_called_over_tls(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(files.ca_file))
    assert await over_tls(files, "localhost") == b"good"
    assert await over_tls(files, "127.0.0.1") == b"good"


@pytest.mark.parametrize(("host", "trusted"), [("localhost", False), ("engine.test", True)])
async def test_engine_that_shows_no_good_certificate_is_sent_nothing(
    host: str, trusted: bool, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(files.ca_file))
    with pytest.raises(BackendUnreachable) as caught:
        await over_tls(files, host)
    assert "SSLCertVerificationError" in caught.value.message


# ---------------------------------------------------------------- which connection


async def test_whole_answer_gives_its_connection_back() -> None:
    peers = Peers(plain)
    async with reached(peers) as (_, upstream):
        for _ in range(3):
            answer = await upstream.send(call())
            await read(answer)
            answer.close()
    assert len(set(peers.seen)) == 1


async def test_whole_answer_that_nobody_reads_gives_its_connection_back() -> None:
    peers = Peers(plain)
    async with reached(peers) as (_, upstream):
        for _ in range(2):
            answer = await upstream.send(call())
            await until(lambda: upstream._kept, what="the end of the answer")
            answer.close()
    assert len(set(peers.seen)) == 1


async def test_connection_that_was_used_last_is_used_first() -> None:
    peers = Peers(plain)
    async with reached(peers) as (_, upstream):
        first, second = await upstream.send(call()), await upstream.send(call(), fresh=True)
        await read(second)
        await read(first)
        third, fourth = await asyncio.gather(upstream.send(call()), upstream.send(call()))
        await read(third)
        await read(fourth)
        await read(await upstream.send(call()))
    assert peers.seen[2] == peers.seen[0]
    assert peers.seen[4] == peers.seen[3]


async def test_fresh_call_opens_a_connection_that_is_used_for_nothing_else() -> None:
    peers = Peers(plain)
    async with reached(peers) as (_, upstream):
        await read(await upstream.send(call()))
        await read(await upstream.send(call(), fresh=True))
        await read(await upstream.send(call()))
    assert peers.seen[1] != peers.seen[0] == peers.seen[2]


NOT_KEPT = {
    "it says so": b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\nconnection: close\r\n\r\ngood",
    "an old version": b"HTTP/1.0 200 OK\r\ncontent-length: 4\r\nconnection: keep-alive\r\n\r\ngood",
    "more than its length": b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ngood!",
    "another answer behind": b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ngood" + EMPTY,
    "more than its chunks": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\ngood\r\n0\r\n\r\n!",
    "a body where there is none": b"HTTP/1.1 204 No\r\n\r\n!",
    "a body behind a length of none": b"HTTP/1.1 200 No\r\ncontent-length: 0\r\n\r\n!",
}


@pytest.mark.parametrize("data", NOT_KEPT.values(), ids=NOT_KEPT.keys())
async def test_connection_is_not_kept_behind_an_answer_with(data: bytes) -> None:
    peers = Peers(says(data), plain)
    async with reached(peers) as (_, upstream):
        assert await read(await upstream.send(call())) in (b"good", b"")
        assert b"hello" in await read(await upstream.send(call()))
    assert len(set(peers.seen)) == 2


@pytest.mark.usefixtures("_idle_for_ever")
async def test_connection_on_which_something_came_unasked_is_used_no_more() -> None:
    unasked = asyncio.Event()

    async def answer_more(exchange: Exchange) -> None:
        await exchange.send(EMPTY)
        await unasked.wait()
        await exchange.send(EMPTY)

    peers = Peers(answer_more, plain)
    async with reached(peers) as (_, upstream):
        await read(await upstream.send(call()))
        unasked.set()
        await until(lambda: not upstream._kept, what="the end of the connection")
        assert b"hello" in await read(await upstream.send(call()))
    assert len(set(peers.seen)) == 2


@pytest.mark.usefixtures("_idle_for_ever")
async def test_connection_that_the_engine_closes_while_idle_is_used_no_more() -> None:
    async def answer_and_close(exchange: Exchange) -> None:
        await exchange.send(EMPTY)
        await turns()
        exchange.writer.close()

    async with reached(Peers(answer_and_close, plain)) as (_, upstream):
        await read(await upstream.send(call()))
        await until(lambda: not upstream._kept and not upstream._open, what="the end of the connection")
        assert b"hello" in await read(await upstream.send(call()))


async def test_kept_connection_is_not_used_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine's name may have another address by then."""
    peers = Peers(plain)
    async with reached(peers) as (_, upstream):
        for age_s in (30.0, 30.0, 0.0):
            monkeypatch.setattr(module, "MAX_AGE_S", age_s)
            await read(await upstream.send(call()))
    assert peers.seen[0] == peers.seen[1] != peers.seen[2]


async def test_connection_that_was_idle_for_too_long_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    peers = Peers(plain)
    async with reached(peers) as (_, upstream):
        await read(await upstream.send(call()))
        await read(await upstream.send(call()))
        monkeypatch.setattr(module, "POOL_IDLE_S", 0.0)
        await read(await upstream.send(call()))
    assert peers.seen[0] == peers.seen[1] != peers.seen[2]


async def test_connections_that_are_idle_are_closed_also_when_nobody_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POOL_IDLE_S", 0.02)
    async with reached() as (_, upstream):
        answers = [await upstream.send(call()) for _ in range(3)]
        for answer in answers:
            await read(answer)
        await until(lambda: not upstream._kept and not upstream._open, what="the end of three connections")
        await until(lambda: upstream._sweeper is None, what="the end of looking")
        await read(await upstream.send(call()))
        await until(lambda: not upstream._open, what="the end of another")


async def test_closing_the_upstream_closes_every_connection_and_may_be_done_twice() -> None:
    async def endless(exchange: Exchange) -> None:
        await exchange.stream_head()
        await exchange.gone()

    async with reached(Peers(endless, plain)) as (engine, upstream):
        answer = await upstream.send(call())
        await read(await upstream.send(call()))
        await upstream.close()
        await upstream.close()
        with pytest.raises(BackendBroken):
            await answer.read()
        await until(lambda: not engine._connections, what="the end of both connections")


async def test_connection_notices_a_host_that_is_gone_without_a_word() -> None:
    async with reached() as (_, upstream):
        await read(await upstream.send(call()))
        opened = upstream._kept[0].transport.get_extra_info("socket")
        kept_alive = opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        unheard = opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
        at_once = opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert (bool(kept_alive), unheard, bool(at_once)) == (True, VANISHED["TCP_USER_TIMEOUT"], True)


# ---------------------------------------------------------------- callers that leave


async def test_cancelled_call_closes_its_connection() -> None:
    began, closed = asyncio.Event(), asyncio.Event()

    async def silent(exchange: Exchange) -> None:
        began.set()
        await exchange.gone()
        closed.set()

    async with reached(silent) as (_, upstream):
        task = asyncio.create_task(upstream.send(call()))
        await began.wait()
        task.cancel()
        async with asyncio.timeout(30):
            await closed.wait()


async def left_as_its_connection_is_made(upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call whose caller leaves in the very turn in which its connection is made, before that is the caller's."""
    made = Connection.connection_made

    def made_too_late(self: Connection, transport: asyncio.BaseTransport) -> None:
        made(self, transport)
        task.cancel()

    monkeypatch.setattr(Connection, "connection_made", made_too_late)
    task = asyncio.create_task(upstream.send(call()))
    await asyncio.wait({task})
    assert task.cancelled()


async def test_caller_that_leaves_as_its_connection_is_made_leaves_nothing_behind_for_the_collector(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with reached() as (engine, upstream):
        with unfreed() as found:
            await left_as_its_connection_is_made(upstream, monkeypatch)
            await until(lambda: not engine._connections, what="the end of the connection")
        assert not upstream._open
    assert not found


async def test_caller_that_leaves_as_its_connection_is_made_waits_for_no_goodbye_under_tls(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an engine that hangs it may never come."""
    monkeypatch.setenv("SSL_CERT_FILE", str(files.ca_file))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.folder / "tls.crt", files.folder / "tls.key")
    # The engine speaks last in its handshake, and has ended it before the client's connection is made.
    context.maximum_version = ssl.TLSVersion.TLSv1_2

    def shake_hands_and_hang() -> None:
        accepted, _ = listening.accept()
        accepted.settimeout(LESS_THAN_SHUTDOWN_S)
        secured = context.wrap_socket(accepted, server_side=True)
        with socket.socket(fileno=secured.detach()) as wire, contextlib.suppress(ConnectionResetError):
            wire.settimeout(LESS_THAN_SHUTDOWN_S)
            while wire.recv(1024):
                pass

    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(LESS_THAN_SHUTDOWN_S)  # a thread that waits longer would keep the loop from its end
        upstream = Upstream(f"https://127.0.0.1:{listening.getsockname()[1]}", connect_s=5)
        engine = asyncio.ensure_future(asyncio.to_thread(shake_hands_and_hang))  # raises where it waits in vain
        await left_as_its_connection_is_made(upstream, monkeypatch)
        await engine


async def test_caller_that_leaves_as_its_answer_comes_costs_the_next_one_nothing() -> None:
    """Whose answer may be on the same connection by then."""
    async with reached() as (_, upstream):
        await read(await upstream.send(call()))
        task = asyncio.create_task(upstream.send(call()))
        async with asyncio.timeout(30):
            await turns(1)
            while not upstream._kept:
                await turns(1)  # at the very turn in which the answer comes, however late that is
        assert not task.done(), "it would have left too late"
        task.cancel()
        answer = await upstream.send(call())
        with pytest.raises(asyncio.CancelledError):
            await task
        assert b"hello" in await read(answer)


# ---------------------------------------------------------------- failures


async def reset(exchange: Exchange) -> None:
    exchange.reset()


async def close(exchange: Exchange) -> None:
    exchange.writer.close()


async def half_head(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\nconte")
    exchange.writer.close()


def then_waits(*data: bytes) -> Script:
    async def say(exchange: Exchange) -> None:
        await says(*data)(exchange)
        await exchange.gone()

    return say


async def half_body(exchange: Exchange) -> None:
    await exchange.head("200 OK", "content-length: 9")
    await exchange.send(b"half")
    exchange.writer.close()


async def half_chunk(exchange: Exchange) -> None:
    await exchange.stream_head()
    await exchange.send(b"9\r\nhalf")
    exchange.writer.close()


async def no_last_chunk(exchange: Exchange) -> None:
    await exchange.stream_head()
    await exchange.chunk(b"all")
    exchange.writer.close()


async def reset_until_close(exchange: Exchange) -> None:
    await exchange.head("200 OK")
    await exchange.send(b"half")
    await turns()
    sock = exchange.writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    exchange.reset()


garbage = then_waits(b"\x00\x01\x02\r\n\r\n")
garbage_without_end = then_waits(b"SSH-2.0-OpenSSH\r\n")
bad_chunk = then_waits(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"4\r\ngood\r\n", b"zz\r\n")
BREAKS = [reset, close, half_head, garbage, garbage_without_end, half_body, half_chunk, no_last_chunk, bad_chunk]


@pytest.mark.parametrize("script", [*BREAKS, reset_until_close])
async def test_answer_that_breaks_is_broken(script: Script) -> None:
    async with asyncio.timeout(10):
        error = await failure_of(script)
    assert type(error) is BackendBroken
    assert "127.0.0.1" not in error.message


@pytest.mark.parametrize(
    "status", ["101 Switching\r\nconnection: upgrade\r\nupgrade: x", "101 Oh", "099 Oh", "600 Oh", "999 Oh"]
)
async def test_status_that_is_no_answers_is_broken(status: str) -> None:
    script = then_waits(f"HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n".encode())
    async with asyncio.timeout(10):
        assert type(await failure_of(script)) is BackendBroken


async def test_head_that_is_too_large_is_broken() -> None:
    async with asyncio.timeout(10):
        script = then_waits(b"HTTP/1.1 200 OK\r\nx: " + b"a" * 70_000)
        assert "too long" in (await failure_of(script)).message


@pytest.mark.parametrize("script", [reset, close])
async def test_kept_connection_that_closes_at_once_is_stale(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STALE_WITHIN_S", 60.0)
    assert isinstance(await failure_of(Peers(plain, script), calls=2), StaleConnection)


@pytest.mark.parametrize("script", [reset, close])
async def test_new_connection_that_closes_at_once_is_not_stale(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STALE_WITHIN_S", 60.0)
    assert type(await failure_of(script)) is BackendBroken


async def test_kept_connection_that_closes_late_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine may have had the request: to send it again could run the prompt twice."""
    monkeypatch.setattr(module, "STALE_WITHIN_S", 0.0)
    assert type(await failure_of(Peers(plain, close), calls=2)) is BackendBroken


@pytest.mark.parametrize("script", [garbage, half_head, half_body])
async def test_kept_connection_that_has_begun_to_answer_is_not_stale(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STALE_WITHIN_S", 60.0)
    async with asyncio.timeout(10):
        assert type(await failure_of(Peers(plain, script), calls=2)) is BackendBroken


async def test_connection_that_is_lost_as_it_is_made_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing would ever come of a request that is written to it."""
    made = Connection.connection_made

    def lose(self: Connection, transport: asyncio.BaseTransport) -> None:
        made(self, transport)
        self.connection_lost(ConnectionResetError())

    monkeypatch.setattr(Connection, "connection_made", lose)
    async with reached() as (_, upstream), asyncio.timeout(10):
        with pytest.raises(BackendBroken, match="ConnectionResetError"):
            await upstream.send(call())
        assert not upstream._open


async def test_connection_that_closes_as_it_is_made_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Connection.connection_made

    def close_at_once(self: Connection, transport: asyncio.BaseTransport) -> None:
        made(self, transport)
        self.transport.abort()

    monkeypatch.setattr(Connection, "connection_made", close_at_once)
    async with reached() as (_, upstream), asyncio.timeout(10):
        for asked in (call(), call(body=b"x" * 2 * WRITE_BYTES)):
            with pytest.raises(BackendBroken):
                await upstream.send(asked)
        assert not upstream._open


async def test_only_what_never_reached_the_backend_is_free_to_retry() -> None:
    assert (BackendUnreachable.reached, BackendBroken.reached, StaleConnection.reached) == (False, True, True)


async def test_kept_connection_that_is_reset_while_idle_is_no_error_that_nobody_heard() -> None:
    unheard: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
    finished = asyncio.Event()

    async def then_reset(exchange: Exchange) -> None:
        await exchange.send(EMPTY)
        await finished.wait()
        sock = exchange.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        exchange.reset()

    async with reached(Peers(then_reset, plain)) as (_, upstream):
        await read(await upstream.send(call()))
        finished.set()
        await until(lambda: not upstream._open, what="the reset")
        await read(await upstream.send(call()))
        gc.collect()
        assert unheard == []


# ---------------------------------------------------------------- nothing stays behind


async def test_calls_that_fail_or_are_given_up_leave_nothing_behind_for_the_collector() -> None:
    async def endless(exchange: Exchange) -> None:
        await exchange.head("200 OK", "content-length: 100")
        await exchange.gone()

    async def give_up(upstream: Upstream) -> None:
        answer = await upstream.send(call())
        reader = asyncio.ensure_future(answer.read())
        await turns(1)
        answer.close()
        await asyncio.wait({reader})
        assert isinstance(reader.exception(), BackendBroken)

    async def fail(upstream: Upstream) -> None:
        with pytest.raises(BackendBroken):
            await read(await upstream.send(call()))

    async def finish(upstream: Upstream) -> None:
        await read(await upstream.send(call()))

    def alive() -> list[object]:
        return [each for each in gc.get_objects() if issubclass(type(each), Answer | AnswerHead | Connection | Call)]

    gc.collect()
    others = alive()  # of other tests
    gc.disable()
    try:
        async with reached(Peers(endless, half_body, half_head, bad_chunk, garbage, plain, endless)) as (_, upstream):
            for act in (give_up, fail, fail, fail, fail, finish, give_up):
                await act(upstream)
            await until(lambda: not upstream._open, what="the end of the connections")
            left = [each for each in alive() if not any(each is other for other in others)]
    finally:
        gc.enable()
    assert left == []

"""The proxy's own questions to an engine."""

import errno
import socket

import pytest
from aiohttp.client_proto import ResponseHandler
from fakes.engine import Exchange, FakeEngine, Script
from fakes.until import turns, until

from proxy.errors import BackendBroken, BackendUnreachable, FirstByteTimeout, OutOfSockets
from proxy.protocol.answer_head import MAX_HEAD_BYTES
from proxy.wire import control as module
from proxy.wire.connection import MAX_INTERIM_HEADS
from proxy.wire.control import Control, Reply
from proxy.wire.names import Address, Addresses, Names


async def asked(script: Script, *, within_s: float = 30.0, api_key: str | None = None) -> tuple[Reply, FakeEngine]:
    async with FakeEngine(script=script) as engine:
        control = Control(engine.url, api_key=api_key, connect_s=30)
        try:
            return await control.get("/metrics", within_s=within_s), engine
        finally:
            await control.close()


async def body(exchange: Exchange) -> None:
    await exchange.answer(b"load 1\n")


async def test_answer_is_given_with_its_status() -> None:
    async def missing(exchange: Exchange) -> None:
        await exchange.answer(b"no", "404 Not Found")

    assert (await asked(missing))[0] == Reply(404, b"no")


async def test_answer_in_many_segments_is_read_whole() -> None:
    async def slow(exchange: Exchange) -> None:
        await exchange.head("200 OK", "content-length: 40000")
        for _ in range(4):
            await exchange.send(b"x" * 10_000)
            await turns()

    assert len((await asked(slow))[0].body) == 40_000


async def test_key_of_the_backend_is_sent() -> None:
    _, engine = await asked(body, api_key="engine-key")
    assert engine.requests[0].header("authorization") == "Bearer engine-key"


async def test_no_key_is_sent_where_there_is_none() -> None:
    _, engine = await asked(body)
    assert engine.requests[0].header("authorization") is None


async def test_connection_is_kept() -> None:
    peers: list[object] = []

    async def note(exchange: Exchange) -> None:
        peers.append(exchange.writer.get_extra_info("peername"))
        await exchange.answer(b"x")

    async with FakeEngine(script=note) as engine:
        control = Control(engine.url, api_key=None, connect_s=30)
        for _ in range(3):
            await control.get("/metrics", within_s=30)
        await control.close()
    assert len(set(peers)) == 1


async def test_redirect_is_not_followed() -> None:
    async def away(exchange: Exchange) -> None:
        await exchange.answer(b"", "302 Found", "location: /elsewhere")

    reply, engine = await asked(away)
    assert (reply.status, len(engine.requests)) == (302, 1)


async def test_engine_is_found_by_the_names_of_its_line() -> None:
    async def machine(host: str, port: int) -> Addresses:
        assert host == "engine.test"
        return [Address("127.0.0.1", port, socket.AF_INET)]

    async with FakeEngine(script=body) as engine:
        control = Control(f"http://engine.test:{engine.port}", api_key=None, connect_s=30, names=Names(machine))
        assert await control.get("/metrics", within_s=30) == Reply(200, b"load 1\n")
        await control.close()


async def test_refused_connection_is_unreachable() -> None:
    async with FakeEngine() as engine:
        pass
    control = Control(engine.url, api_key=None, connect_s=1)
    with pytest.raises(BackendUnreachable):
        await control.get("/ready", within_s=30)
    await control.close()


async def hang(exchange: Exchange) -> None:
    await exchange.gone()


async def half(exchange: Exchange) -> None:
    await exchange.head("200 OK", "content-length: 9")
    await exchange.gone()


async def close(exchange: Exchange) -> None:
    exchange.writer.close()


async def garbage(exchange: Exchange) -> None:
    await exchange.send(b"\x00\r\n\r\n")


@pytest.mark.parametrize("script", [half, close, garbage])
async def test_answer_that_is_broken_or_has_begun_and_is_late_is_broken(script: Script) -> None:
    with pytest.raises(BackendBroken):
        await asked(script, within_s=0.1)


async def test_answer_of_which_nothing_came_in_time_is_told_from_a_broken_one() -> None:
    with pytest.raises(FirstByteTimeout):
        await asked(hang, within_s=0.1)


async def test_answer_that_is_too_large_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ANSWER_BYTES", 5)
    with pytest.raises(BackendBroken):
        await asked(body)


HINTS = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"


async def hints(exchange: Exchange) -> None:
    """Say that an answer will come, without end."""
    while True:
        await exchange.send(HINTS * 500)


async def large_head(exchange: Exchange) -> None:
    """Begin a head that has no end, in fields that are none of them large."""
    await exchange.send(b"HTTP/1.1 200 OK\r\n")
    while True:
        await exchange.send(b"x-a: %b\r\n" % (b"a" * 1000))


async def answered_and_hints(exchange: Exchange) -> None:
    """A whole answer, and what belongs to none behind it."""
    await exchange.answer(b"")
    await hints(exchange)


@pytest.mark.parametrize("script", [hints, large_head])
async def test_heads_without_end_are_left_after_little_of_them(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    read = heard(monkeypatch)
    with pytest.raises(BackendBroken, match="ClientConnectionError"):
        await asked(script, within_s=30.0)
    assert sum(read) <= MAX_HEAD_BYTES + module.PIECE_BYTES


async def test_heads_behind_an_answer_end_a_connection_that_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    read = heard(monkeypatch)
    async with FakeEngine(script=answered_and_hints) as engine:
        control = Control(engine.url, api_key=None, connect_s=1)
        assert (await control.get("/metrics", within_s=30.0)).status == 200
        await until(lambda: not engine.open, what="the end of the connection")
        await control.close()
    assert sum(read) <= 2 * module.PIECE_BYTES


async def test_a_few_interim_heads_belong_to_an_answer() -> None:
    async def hinted(exchange: Exchange) -> None:
        await exchange.send(HINTS * MAX_INTERIM_HEADS)
        await exchange.answer(b"load 1\n")

    assert (await asked(hinted))[0] == Reply(200, b"load 1\n")


def heard(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes aiohttp is given to read, each time."""
    sizes: list[int] = []
    take = ResponseHandler.data_received

    def taken(self: ResponseHandler, data: bytes) -> None:
        sizes.append(len(data))
        take(self, data)

    monkeypatch.setattr(ResponseHandler, "data_received", taken)
    return sizes


async def test_want_of_a_file_is_no_word_of_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_file(*_: object) -> socket.socket:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(module, "_open_socket", no_file)
    with pytest.raises(OutOfSockets, match="LimitNOFILE"):
        await asked(body)

"""One call to one backend over real sockets, and what its failures are called."""

import asyncio
import gc
import os
import socket
import struct

import aiohttp
import pytest
from fakes.engine import Exchange, FakeEngine, Script, plain
from fakes.until import until
from proxy.wire.upstream import VANISHED, AiohttpUpstream, Answer, Call

from proxy.errors import BackendBroken, BackendUnreachable, StaleConnection, UpstreamError
from proxy.wire import upstream as module

HOST = [("Host", "engine.example")]


def call(target: str = "/v1/chat/completions", body: bytes = b"{}", method: str = "POST") -> Call:
    return Call(method, target, HOST, body)


async def read(answer: Answer) -> bytes:
    whole = b""
    try:
        while data := await answer.read():
            whole += data
    finally:
        answer.close()
    return whole


async def failure_of(script: Script, *, calls: int = 1) -> UpstreamError:
    """The error that the last of some calls ends with."""
    async with FakeEngine(script=script) as engine:
        upstream = AiohttpUpstream(engine.url, connect_s=1)
        try:
            for _ in range(calls - 1):
                await read(await upstream.send(call()))
            with pytest.raises(UpstreamError) as caught:
                await read(await upstream.send(call()))
            return caught.value
        finally:
            await upstream.close()


async def sent(one: Call) -> FakeEngine:
    """An engine that has seen the call."""
    async with FakeEngine() as engine:
        upstream = AiohttpUpstream(engine.url, connect_s=1)
        (await upstream.send(one)).close()
        await upstream.close()
    return engine


# ---------------------------------------------------------------- what is sent


async def test_headers_are_those_of_the_call_and_a_length() -> None:
    seen = (await sent(call())).requests[0].headers
    assert sorted((name.lower(), value) for name, value in seen) == [
        ("content-length", "2"),
        ("host", "engine.example"),
    ]


async def test_body_is_sent_as_it_is() -> None:
    assert (await sent(call(body=b"\x00\xff"))).requests[0].body == b"\x00\xff"


@pytest.mark.parametrize(
    "target", ["/v1/models/a%2Fb?x=1&x=2&y", "/v1/models?q=%E9+%20;", "/v1/models/%7e~", "/v1?", "/a??"]
)
async def test_target_is_sent_byte_for_byte(target: str) -> None:
    assert (await sent(call(target, b"", "GET"))).requests[0].target == target


async def test_environment_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setitem(os.environ, name, "http://127.0.0.1:9")
    assert len((await sent(call())).requests) == 1


@pytest.mark.parametrize("host", ["::1", "127.0.0.1"])
async def test_both_address_families_are_reached(host: str) -> None:
    async with FakeEngine(host=host) as engine:
        upstream = AiohttpUpstream(engine.url, connect_s=1)
        assert await read(await upstream.send(call()))
        await upstream.close()


async def test_name_that_stands_for_several_addresses_is_reached_at_one_that_listens() -> None:
    async with FakeEngine(host="127.0.0.1") as engine:
        upstream = AiohttpUpstream(f"http://localhost:{engine.port}", connect_s=1)
        assert await read(await upstream.send(call()))
        await upstream.close()


# ---------------------------------------------------------------- what comes back


async def test_names_and_values_of_headers_are_the_backends() -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 200 OK\r\nX-Odd:  a \r\nx-Odd: b\r\ncontent-length: 0\r\n\r\n")

    async with FakeEngine(script=answer) as engine:
        upstream = AiohttpUpstream(engine.url, connect_s=1)
        assert (await upstream.send(call())).headers == [("X-Odd", "a"), ("x-Odd", "b"), ("content-length", "0")]
        await upstream.close()


async def test_whole_answer_gives_its_connection_back() -> None:
    peers: list[object] = []

    async def note(exchange: Exchange) -> None:
        peers.append(exchange.writer.get_extra_info("peername"))
        await plain(exchange)

    async with FakeEngine(script=note) as engine:
        upstream = AiohttpUpstream(engine.url, connect_s=1)
        for _ in range(3):
            answer = await upstream.send(call())
            await read(answer)
            answer.close()
        await upstream.close()
    assert len(set(peers)) == 1


async def test_fresh_call_opens_a_connection_of_its_own() -> None:
    peers: list[object] = []

    async def note(exchange: Exchange) -> None:
        peers.append(exchange.writer.get_extra_info("peername"))
        await plain(exchange)

    async with FakeEngine(script=note) as engine:
        upstream = AiohttpUpstream(engine.url, connect_s=1)
        await read(await upstream.send(call()))
        await read(await upstream.send(call(), fresh=True))
        await upstream.close()
    assert len(set(peers)) == 2


async def test_closed_answer_closes_its_connection() -> None:
    closed = asyncio.Event()

    async def endless(exchange: Exchange) -> None:
        await exchange.stream_head()
        await exchange.gone()
        closed.set()

    async with FakeEngine(script=endless) as engine:
        upstream = AiohttpUpstream(engine.url, connect_s=1)
        (await upstream.send(call())).close()
        async with asyncio.timeout(1):
            await closed.wait()
        await upstream.close()


async def test_cancelled_call_closes_its_connection() -> None:
    began, closed = asyncio.Event(), asyncio.Event()

    async def silent(exchange: Exchange) -> None:
        began.set()
        await exchange.gone()
        closed.set()

    async with FakeEngine(script=silent) as engine:
        upstream = AiohttpUpstream(engine.url, connect_s=1)
        task = asyncio.create_task(upstream.send(call()))
        await began.wait()
        task.cancel()
        async with asyncio.timeout(1):
            await closed.wait()
        await upstream.close()


async def test_answer_reads_what_has_come_and_waits_for_no_more() -> None:
    async def slow(exchange: Exchange) -> None:
        await exchange.stream_head()
        await exchange.chunk(b"first")
        await exchange.gone()

    async with FakeEngine(script=slow) as engine:
        upstream = AiohttpUpstream(engine.url, connect_s=1)
        answer = await upstream.send(call())
        assert await answer.read() == b"first"
        answer.close()
        await upstream.close()


# ---------------------------------------------------------------- failures


async def test_refused_connection_is_unreachable() -> None:
    async with FakeEngine() as engine:
        pass
    upstream = AiohttpUpstream(engine.url, connect_s=1)
    with pytest.raises(BackendUnreachable):
        await upstream.send(call())
    await upstream.close()


async def test_name_that_does_not_resolve_is_unreachable() -> None:
    upstream = AiohttpUpstream("http://engine.invalid:1", connect_s=1)
    with pytest.raises(BackendUnreachable):
        await upstream.send(call())
    await upstream.close()


async def reset(exchange: Exchange) -> None:
    exchange.reset()


async def close(exchange: Exchange) -> None:
    exchange.writer.close()


async def garbage(exchange: Exchange) -> None:
    await exchange.send(b"\x00\x01\x02\r\n\r\n")


async def half_body(exchange: Exchange) -> None:
    await exchange.head("200 OK", "content-length: 9")
    await exchange.send(b"half")
    exchange.writer.close()


async def half_chunk(exchange: Exchange) -> None:
    await exchange.stream_head()
    await exchange.send(b"9\r\nhalf")
    exchange.writer.close()


async def bad_chunk(exchange: Exchange) -> None:
    await exchange.stream_head()
    await exchange.chunk(b"good")
    await exchange.send(b"zz\r\n")
    await exchange.gone()


@pytest.mark.parametrize("script", [reset, close, garbage, half_body, half_chunk, bad_chunk])
async def test_answer_that_breaks_is_broken(script: Script) -> None:
    async with asyncio.timeout(3):
        assert type(await failure_of(script)) is BackendBroken


def second(script: Script) -> Script:
    count = 0

    async def serve(exchange: Exchange) -> None:
        nonlocal count
        count += 1
        await (plain if count == 1 else script)(exchange)

    return serve


@pytest.mark.parametrize("script", [reset, close])
async def test_kept_connection_that_closes_at_once_is_stale(script: Script) -> None:
    assert isinstance(await failure_of(second(script), calls=2), StaleConnection)


async def test_kept_connection_that_closes_late_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine may have had the request: to send it again could run the prompt twice."""
    monkeypatch.setattr(module, "STALE_WITHIN_S", 0.0)
    assert type(await failure_of(second(close), calls=2)) is BackendBroken


async def test_kept_connection_that_answers_garbage_is_broken() -> None:
    assert type(await failure_of(second(garbage), calls=2)) is BackendBroken


@pytest.mark.parametrize("script", [reset, close, garbage, half_body])
async def test_message_names_no_address(script: Script) -> None:
    assert "127.0.0.1" not in (await failure_of(script)).message


async def test_only_what_never_reached_the_backend_is_free_to_retry() -> None:
    assert (BackendUnreachable.reached, BackendBroken.reached, StaleConnection.reached) == (False, True, True)


async def test_upstream_may_be_closed_twice() -> None:
    upstream = AiohttpUpstream("http://127.0.0.1:1", connect_s=1)
    await upstream.close()
    await upstream.close()


async def test_connection_notices_a_host_that_is_gone_without_a_word() -> None:
    async def head_alone(exchange: Exchange) -> None:
        await exchange.head("200 OK", "content-length: 5")
        await exchange.gone()

    async with FakeEngine(script=head_alone) as engine:
        upstream = AiohttpUpstream(engine.url, connect_s=1)
        answer = await upstream.send(call())
        opened = answer._response.connection.transport.get_extra_info("socket")  # type: ignore[attr-defined]
        kept_alive = opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        unheard = opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
        answer.close()
        await upstream.close()
    assert (bool(kept_alive), unheard) == (True, VANISHED["TCP_USER_TIMEOUT"])


async def test_kept_connection_that_is_reset_while_idle_is_no_error_that_nobody_heard() -> None:
    unheard: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
    headed, finished = asyncio.Event(), asyncio.Event()

    async def slow_then_reset(exchange: Exchange) -> None:
        await exchange.head("200 OK", "content-length: 2")
        await headed.wait()
        await exchange.send(b"{}")
        await finished.wait()
        sock = exchange.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        exchange.reset()

    async with FakeEngine(script=slow_then_reset) as engine:
        upstream = AiohttpUpstream(engine.url, connect_s=1)
        answer = await upstream.send(call())
        headed.set()
        closed = answer._closed  # type: ignore[attr-defined]
        assert await read(answer) == b"{}"
        del answer
        finished.set()
        await until(closed.done, what="the reset")
        del closed
        await read(await upstream.send(call()))  # which drops the connection that is no more
        gc.collect()
        await upstream.close()
    assert unheard == []


async def test_kept_connection_is_not_used_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine's name may have another address by then."""
    peers: list[object] = []

    async def note(exchange: Exchange) -> None:
        peers.append(exchange.writer.get_extra_info("peername"))
        await plain(exchange)

    async with FakeEngine(script=note) as engine:
        upstream = AiohttpUpstream(engine.url, connect_s=1)
        for age_s in (30.0, 30.0, 0.0):
            monkeypatch.setattr(module, "MAX_AGE_S", age_s)
            await read(await upstream.send(call()))
        await upstream.close()
    assert peers[0] == peers[1] != peers[2]


def test_connection_that_is_not_made_in_time_has_a_code_of_its_own() -> None:
    for error in (aiohttp.ConnectionTimeoutError(), TimeoutError()):
        told = module._translate(error, reused=False, after_s=2.0)
        assert (told.code, told.status, told.reached) == ("connect_timeout", 502, False)
        assert "timeouts.connect_s" in told.message


async def test_answers_that_are_given_up_while_they_are_read_leave_nothing_behind() -> None:
    async def endless(exchange: Exchange) -> None:
        await exchange.head("200 OK", "content-length: 100")
        await exchange.gone()

    async def given_up(upstream: AiohttpUpstream) -> None:
        answer = await upstream.send(call())
        reader = asyncio.ensure_future(answer.read())
        await asyncio.sleep(0)
        answer.close()
        with pytest.raises(BackendBroken):
            await reader

    async with FakeEngine(script=endless) as engine:
        upstream = AiohttpUpstream(engine.url, connect_s=1)
        for _ in range(5):
            await given_up(upstream)
        await upstream.close()
    gc.collect()
    assert not [one for one in gc.get_objects() if isinstance(one, module.AiohttpAnswer)]

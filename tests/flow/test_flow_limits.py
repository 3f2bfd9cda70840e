"""What a hostile client may take: connections, heads, bodies and time; each has a limit, an answer and a count."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from fakes.engine import Exchange
from fakes.leaping import leaping
from fakes.raw import RawClient, Said, ask, chat, request
from fakes.stage import staged
from fakes.until import turns, until
from prometheus_client.parser import text_string_to_metric_families

from proxy.app import App
from proxy.model import Outcome

HEALTH = request("/healthz", method="GET")
HOST = b"host: x\r\n"


def counted(app: App, name: str, **labels: str) -> float:
    """One counter as a scrape shows it; 0 before it has counted."""
    families = text_string_to_metric_families(app.metrics.exposition().decode())
    samples = [each for family in families for each in family.samples if each.name == name]
    return sum(each.value for each in samples if labels.items() <= each.labels.items())


def refused(app: App, code: str) -> float:
    return counted(app, "crossover_refusals_total", code=code)


def closed(app: App, reason: str) -> float:
    return counted(app, "crossover_connections_closed_total", reason=reason)


def require_error(said: Said, status: int, code: str) -> None:
    """An error of ours, whole."""
    error = said.json["error"]
    assert isinstance(error, dict)
    assert (said.status, error["code"], said.whole) == (status, code, True)


async def require_last(client: RawClient, status: int, code: str) -> None:
    """The same as the last that is said on a connection."""
    require_error(await client.answer(), status, code)
    assert await client.rest() == b""


async def drip(client: RawClient, piece: bytes) -> None:
    """Send on and on, faster than any limit, until the other side has had enough."""
    with contextlib.suppress(ConnectionError):
        while not client.reader.at_eof():
            await client.send(piece)
            await asyncio.sleep(0.005)  # sleeps: a drip


@contextlib.asynccontextmanager
async def dripping(client: RawClient, piece: bytes) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(drip(client, piece))
        try:
            yield
        finally:
            task.cancel()


# ---------------------------------------------------------------- connections


async def test_connection_over_the_limit_is_told_503_and_when_to_come_again() -> None:
    async with (
        staged(listen={"max_connections": 1}) as stage,
        RawClient(stage.app.port) as first,
        RawClient(stage.app.port) as second,
    ):
        await first.send(HEALTH)
        assert (await first.answer()).status == 200
        await second.send(HEALTH)
        said = await second.answer()
        require_error(said, 503, "too_many_connections")
        assert said.header("retry-after") == "1"
        assert await second.rest() == b""
        assert refused(stage.app, "too_many_connections") == 1


async def test_connection_over_the_limit_can_read_its_answer_though_it_sent_on() -> None:
    async with (
        staged(listen={"max_connections": 1}) as stage,
        RawClient(stage.app.port) as first,
        RawClient(stage.app.port) as second,
    ):
        await first.send(HEALTH)
        await first.answer()
        second.writer.transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(3):
            await second.send(request(body=chat()))
            await until(lambda: refused(stage.app, "too_many_connections") == 1)
            await turns(20)
        second.writer.transport.resume_reading()  # type: ignore[attr-defined]
        require_error(await second.answer(), 503, "too_many_connections")


async def test_connections_within_the_limit_are_served_while_others_are_turned_away() -> None:
    async with staged(listen={"max_connections": 1}) as stage, RawClient(stage.app.port) as first:
        await first.send(HEALTH)
        await first.answer()
        for _ in range(5):
            assert (await ask(stage.app.port, HEALTH)).status == 503
            await first.send(HEALTH)
            assert (await first.answer()).status == 200


async def test_place_of_a_connection_that_closes_is_free_again() -> None:
    async with staged(listen={"max_connections": 1}) as stage:
        for _ in range(3):
            assert (await ask(stage.app.port, HEALTH)).status == 200
            await until(lambda: not stage.app._front.connections, what="the end of the connection")


async def test_connection_over_the_limit_that_says_nothing_is_closed_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("proxy.wire.arrivals.TURN_WITHIN_S", 0.05)
    async with (
        staged(listen={"max_connections": 1}) as stage,
        RawClient(stage.app.port) as first,
        RawClient(stage.app.port) as silent,
    ):
        await first.send(HEALTH)
        await first.answer()
        assert await silent.rest() == b""
        await until(lambda: closed(stage.app, "over_limit") == 1)


async def test_flood_over_the_limit_is_closed_without_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.plan.MAX_TOLD", 2)
    async with contextlib.AsyncExitStack() as stack:
        stage = await stack.enter_async_context(staged(listen={"max_connections": 1}))
        clients = [await stack.enter_async_context(RawClient(stage.app.port)) for _ in range(6)]
        await until(lambda: closed(stage.app, "over_limit") == 3, what="three closed at once")
        await clients[0].send(HEALTH)
        assert (await clients[0].answer()).status == 200


async def test_operators_port_answers_while_the_clients_port_is_full() -> None:
    async with staged(listen={"max_connections": 1}) as stage, RawClient(stage.app.port) as first:
        await first.send(HEALTH)
        await first.answer()
        assert (await ask(stage.app.admin_port, request("/health", method="GET"))).status == 200


# ---------------------------------------------------------------- heads: time


async def test_connection_that_says_nothing_is_closed_without_a_word() -> None:
    async with staged(listen={"head_timeout_s": 0.1}) as stage, RawClient(stage.app.port) as client:
        assert await client.rest() == b""
        assert closed(stage.app, "silent") == 1


@leaping
async def test_head_that_stops_is_answered_408() -> None:
    async with staged(listen={"head_timeout_s": 0.1}) as stage, RawClient(stage.app.port) as client:
        await client.send(b"GET /healthz HTTP/1.1\r\nho")
        await require_last(client, 408, "head_timeout")
        assert refused(stage.app, "head_timeout") == 1


@leaping
async def test_drips_of_a_head_do_not_extend_its_time() -> None:
    async with staged(listen={"head_timeout_s": 0.15}) as stage, RawClient(stage.app.port) as client:
        await client.send(b"GET /healthz HTTP/1.1\r\n")
        async with dripping(client, b"a: b\r\n"):
            await require_last(client, 408, "head_timeout")


@leaping
async def test_second_head_on_a_connection_has_the_same_limit() -> None:
    async with staged(listen={"head_timeout_s": 0.15}) as stage, RawClient(stage.app.port) as client:
        await client.send(HEALTH)
        assert (await client.answer()).status == 200
        await client.send(b"GET /hea")
        async with dripping(client, b"l"):
            await require_last(client, 408, "head_timeout")


@leaping
async def test_time_between_requests_is_not_that_of_a_head() -> None:
    async with staged(listen={"head_timeout_s": 0.05}) as stage, RawClient(stage.app.port) as client:
        for _ in range(2):
            await client.send(HEALTH)
            assert (await client.answer()).status == 200
            await asyncio.sleep(0.3)  # sleeps: idle for longer than the limit that must not apply


@leaping
async def test_upload_and_answer_are_not_held_to_the_time_of_a_head() -> None:
    async def slow(exchange: Exchange) -> None:
        await asyncio.sleep(0.3)  # sleeps: longer than the limit that must not apply
        await exchange.answer(b"{}")

    async with staged(slow, listen={"head_timeout_s": 0.1}) as stage, RawClient(stage.app.port) as client:
        whole = request(body=chat())
        await client.send(whole[:-5])
        await asyncio.sleep(0.3)  # sleeps: longer than the limit that must not apply
        await client.send(whole[-5:])
        assert (await client.answer()).status == 200


@leaping
async def test_slow_heads_hold_nobody_up() -> None:
    async with contextlib.AsyncExitStack() as stack:
        stage = await stack.enter_async_context(staged(listen={"head_timeout_s": 0.5}))
        slow = [await stack.enter_async_context(RawClient(stage.app.port)) for _ in range(20)]
        for client in slow:
            await client.send(b"GET / HT")
        assert (await stage.ask()).status == 200
        assert [(await client.head()).status for client in slow] == [408] * 20


# ---------------------------------------------------------------- heads: size

GET = b"GET /healthz HTTP/1.1\r\n" + HOST
LARGE = {
    "one long value": GET + b"x-a: " + b"a" * 3000 + b"\r\n\r\n",
    "long target": b"GET /healthz?" + b"a" * 3000 + b" HTTP/1.1\r\n" + HOST + b"\r\n",
    "many values": GET + b"".join(b"x-%d: %b\r\n" % (n, b"a" * 90) for n in range(30)) + b"\r\n",
    "many headers": GET + b"".join(b"x-%d: 1\r\n" % n for n in range(60)) + b"\r\n",
}


@pytest.mark.parametrize("data", LARGE.values(), ids=LARGE)
async def test_head_over_its_limits_is_answered_431(data: bytes) -> None:
    listen = {"max_head_bytes": 2048, "max_headers": 50}
    async with staged(listen=listen) as stage, RawClient(stage.app.port) as client:
        await client.send(data + HEALTH)
        await require_last(client, 431, "head_too_large")
        assert refused(stage.app, "head_too_large") == 1


@pytest.mark.parametrize("ahead", [b"", HEALTH], ids=["alone", "behind another request"])
async def test_head_just_within_its_limits_is_served(ahead: bytes) -> None:
    start = GET + b"x: "
    head = start + b"a" * (2048 - len(start) - 4) + b"\r\n\r\n"
    async with staged(listen={"max_head_bytes": 2048}) as stage, RawClient(stage.app.port) as client:
        for _ in range(2):
            await client.send(ahead + head)
            said = [await client.answer() for _ in range(2 if ahead else 1)]
            assert {each.status for each in said} == {200}


async def test_large_body_in_one_piece_with_its_head_is_no_large_head() -> None:
    async with staged(listen={"max_head_bytes": 1024}) as stage, RawClient(stage.app.port) as client:
        await client.send(request(body=chat(padding="x" * 30_000)))
        assert (await client.answer()).status == 200


async def test_last_piece_of_a_body_is_no_piece_of_a_head() -> None:
    async with staged(listen={"max_head_bytes": 2048}) as stage, RawClient(stage.app.port) as client:
        whole = request(body=chat(user="x" * 100_000))
        await client.send(whole[:1000])
        await until(lambda: stage.app.relay.trips, what="the request being read")
        await client.send(whole[1000:])
        assert (await client.answer()).status == 200
        await client.send(request(body=chat()))
        assert (await client.answer()).status == 200


async def test_endless_head_is_answered_431_before_its_time_is_over() -> None:
    listen = {"max_head_bytes": 2048, "max_headers": 10_000}
    async with staged(listen=listen) as stage, RawClient(stage.app.port) as client:
        await client.send(b"GET /healthz HTTP/1.1\r\n")
        async with dripping(client, b"x-a: " + b"a" * 200 + b"\r\n"):
            await require_last(client, 431, "head_too_large")


# ---------------------------------------------------------------- versions


@pytest.mark.parametrize("version", ["2.0", "0.9"])
async def test_other_versions_of_http_are_refused(version: str) -> None:
    async with staged() as stage, RawClient(stage.app.port) as client:
        await client.send(request(body=chat(), version=version))
        await require_last(client, 505, "http_version_not_supported")
        assert refused(stage.app, "http_version_not_supported") == 1
        assert stage.a.requests == []


@pytest.mark.parametrize("data", [b"GET /healthz\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"], ids=["0.9", "2"])
async def test_first_words_of_other_versions_are_never_served(data: bytes) -> None:
    async with staged() as stage:
        assert (await ask(stage.app.port, data)).status in (400, 505)


# ---------------------------------------------------------------- bodies


@leaping
async def test_body_that_drips_is_answered_408_though_it_never_pauses() -> None:
    listen = {"body_timeout_s": 0.2, "min_body_bytes_per_s": 100_000}
    async with staged(listen=listen) as stage, RawClient(stage.app.port) as client:
        await client.send(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 10000\r\n\r\n")
        async with dripping(client, b"x"):
            said = await client.answer()
        require_error(said, 408, "body_too_slow")
        assert said.header("connection") == "close"
        assert (await stage.ended_one()).failure == "body_too_slow"


@leaping
async def test_body_that_comes_fast_enough_is_served_however_long_it_takes() -> None:
    listen = {"body_timeout_s": 0.4, "min_body_bytes_per_s": 10}
    async with staged(listen=listen) as stage, RawClient(stage.app.port) as client:
        whole = request(body=chat(padding="x" * 400))
        for start in range(0, len(whole), 20):
            await client.send(whole[start : start + 20])
            await asyncio.sleep(0.03)  # sleeps: longer than the limit in all, and fast enough
        assert (await client.answer()).status == 200


HELD = {"max_body_bytes": 10_000, "max_held_body_bytes": 15_000}


async def test_bodies_over_the_memory_for_all_of_them_are_refused_before_they_are_read() -> None:
    async def wait(exchange: Exchange) -> None:
        await go.wait()
        await exchange.answer(b"{}")

    go = asyncio.Event()
    large = request(body=chat(padding="x" * 9_000))
    async with staged(wait, wait, listen=HELD) as stage, RawClient(stage.app.port) as first:
        await first.send(large)
        await until(lambda: stage.a.open, what="the first at the engine")
        async with RawClient(stage.app.port) as second:
            await second.send(large[:-5000])
            said = await second.answer()
            require_error(said, 503, "bodies_full")
            assert (said.header("retry-after"), said.header("connection")) == ("1", "close")
        assert counted(stage.app, "crossover_refusals_total", code="bodies_full") == 1
        assert counted(stage.app, "crossover_held_body_bytes") > 9_000
        go.set()
        assert (await first.answer()).status == 200
        await until(lambda: counted(stage.app, "crossover_held_body_bytes") == 0)
        assert (await stage.ask()).status == 200


async def test_body_without_a_length_is_counted_as_it_comes() -> None:
    async with staged(listen={"max_body_bytes": 10_000, "max_held_body_bytes": 10_000}) as stage:
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
        async with RawClient(stage.app.port) as first, RawClient(stage.app.port) as second:
            await first.send(head + b"1770\r\n" + b"x" * 6000 + b"\r\n")
            await until(lambda: stage.app._bodies.held_bytes == 6000, what="the first half")
            await second.send(head + b"1770\r\n" + b"x" * 6000 + b"\r\n")
            require_error(await second.answer(), 503, "bodies_full")
            assert stage.app._bodies.held_bytes == 6000


async def test_bytes_of_a_body_are_free_once_its_answer_begins_or_its_client_has_left() -> None:
    async def talk(exchange: Exchange) -> None:
        await exchange.stream_head()
        await exchange.event({"choices": [{"index": 0, "delta": {"content": "w"}}]})
        await exchange.gone()

    async with staged(talk, listen=HELD) as stage:
        async with RawClient(stage.app.port) as client:
            await client.send(request(body=chat(stream=True, padding="x" * 9_000)))
            await client.head()
            assert stage.app._bodies.held_bytes == 0
        async with RawClient(stage.app.port) as client:
            await client.send(request(body=chat(padding="x" * 9_000))[:-10])
            await until(lambda: stage.app._bodies.held_bytes, what="a body half read")
        await until(lambda: stage.app._bodies.held_bytes == 0, what="nothing held")


async def test_bytes_of_a_body_are_free_when_its_client_leaves_before_the_answer() -> None:
    async def never(exchange: Exchange) -> None:
        await exchange.gone()

    async with staged(never, listen=HELD) as stage:
        async with RawClient(stage.app.port) as client:
            await client.send(request(body=chat(padding="x" * 9_000)))
            await until(lambda: stage.a.open, what="the request at the engine")
            assert stage.app._bodies.held_bytes > 9_000
        await until(lambda: stage.app._bodies.held_bytes == 0, what="nothing held")


# ---------------------------------------------------------------- those who are idle, deaf or loud


async def test_idle_connection_is_closed_and_counted() -> None:
    async with staged(listen={"keepalive_s": 0.1}) as stage, RawClient(stage.app.port) as client:
        await client.send(HEALTH)
        await client.answer()
        assert await client.rest() == b""
        assert closed(stage.app, "idle") == 1


@leaping
async def test_connection_that_has_begun_a_request_is_not_idle() -> None:
    async with staged(listen={"keepalive_s": 0.1}) as stage, RawClient(stage.app.port) as client:
        await client.send(HEALTH)
        await client.answer()
        await client.send(HEALTH[:10])
        await asyncio.sleep(0.3)  # sleeps: longer than the limit that must not apply
        await client.send(HEALTH[10:])
        assert (await client.answer()).status == 200


async def test_client_that_takes_nothing_of_a_stream_is_dropped_and_counted() -> None:
    async def much(exchange: Exchange) -> None:
        await exchange.stream_head()
        for _ in range(400):
            await exchange.event({"choices": [{"index": 0, "delta": {"content": "x" * 50_000}}]})
        await exchange.end()

    async with staged(much, listen={"unread_timeout_s": 0.2}) as stage, RawClient(stage.app.port) as client:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await client.send(request(body=chat(stream=True)))
        assert (await stage.ended_one()).outcome is Outcome.CLIENT_GONE_IN_STREAM
        assert closed(stage.app, "unread") == 1


async def test_client_that_takes_nothing_of_a_long_answer_to_a_question_is_dropped_and_counted() -> None:
    async def long(exchange: Exchange) -> None:
        await exchange.answer(b"x" * (24 << 20))

    async with staged(long, long, listen={"unread_timeout_s": 0.2}) as stage, RawClient(stage.app.port) as client:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await client.send(request("/v1/models", method="GET"))
        await until(lambda: closed(stage.app, "unread") == 1, what="the client dropped")
        await until(lambda: not stage.app._front.connections, what="its connection gone")


async def test_client_that_sends_dozens_of_requests_ahead_is_counted() -> None:
    async def never(exchange: Exchange) -> None:
        await exchange.gone()

    async with staged(never) as stage, RawClient(stage.app.port) as client:
        with contextlib.suppress(ConnectionError):
            await client.send(request(body=chat()) * 40)
        await client.rest()
        await until(lambda: closed(stage.app, "flooded") == 1)


async def test_limits_of_a_reload_hold_for_connections_that_are_open(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {"max_connections": 2, "max_head_bytes": 1024, "max_body_bytes": 1024}
    async with (
        staged() as stage,
        RawClient(stage.app.port) as client,
        RawClient(stage.app.port) as other,
    ):
        for each in (client, other):
            await each.send(HEALTH)
            await each.answer()
        listen = stage.app.settings.listen.model_copy(update=keys)
        monkeypatch.setattr(stage.app, "_source", lambda: stage.app.settings.model_copy(update={"listen": listen}))
        assert (await stage.app.reload())[0]
        assert (await ask(stage.app.port, HEALTH)).status == 503
        await client.send(LARGE["one long value"])
        await require_last(client, 431, "head_too_large")
        await other.send(request(body=chat(padding="x" * 2_000)))
        require_error(await other.answer(), 413, "body_too_large")

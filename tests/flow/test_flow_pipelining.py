"""What a client sends behind a request that is not answered yet, or that ends its connection."""

import asyncio
import contextlib
import re

import pytest
from fakes.engine import Exchange
from fakes.leaping import leaping
from fakes.raw import RawClient, chat, request
from fakes.stage import Stage, staged
from fakes.until import until
from test_flow_limits import HEALTH, closed

# Limits are looked after four times in this.
QUICK = {"head_timeout_s": 0.2}


async def never(exchange: Exchange) -> None:
    await exchange.gone()


def statuses(said: bytes) -> list[int]:
    """Of all answers on a connection."""
    return [int(found) for found in re.findall(rb"HTTP/1\.[01] ([0-9]{3})", said)]


async def flood(client: RawClient, stage: Stage, behind: bytes) -> None:
    """A request, and once it is at an engine something behind it; whoever is cut off while it sends has sent enough."""
    await client.send(request(body=chat()))
    await until(lambda: stage.in_flight == 1, what="the request at an engine")
    with contextlib.suppress(ConnectionError):
        await client.send(behind)


def chunked(size_bytes: int) -> bytes:
    """A request whose body comes byte by byte, and does not end."""
    return b"POST /tokenize HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * size_bytes


@pytest.mark.parametrize(
    "behind",
    [request(body=b"x" * 5_000_000), request(body=b"x" * 100_000), request(body=b"x" * 20_000) * 5, chunked(30_000)],
    ids=["one that stops the reading", "one that does not", "several", "many chunks"],
)
@leaping
async def test_client_that_sends_much_behind_an_unanswered_request_is_dropped_and_counted(behind: bytes) -> None:
    async with staged(never, never, listen=QUICK) as stage, RawClient(stage.app.port) as client:
        await flood(client, stage, behind)
        await until(lambda: closed(stage.app, "flooded") == 1, what="the client dropped")
        await until(lambda: stage.in_flight == 0, what="its place free")


@pytest.mark.parametrize("reset", [False, True], ids=["FIN", "RST"])
@leaping
async def test_leaving_behind_a_second_body_is_noticed_while_the_first_request_is_answered(reset: bool) -> None:
    async with staged(never, never, listen=QUICK) as stage, RawClient(stage.app.port) as client:
        client.writer.transport.set_write_buffer_limits(high=1 << 24)
        await flood(client, stage, request(body=b"x" * 2_000_000))
        client.leave(reset=reset)
        await until(lambda: stage.in_flight == 0, what="the leaving noticed")


@leaping
async def test_small_requests_behind_an_unanswered_one_are_answered_after_it() -> None:
    async def wait(exchange: Exchange) -> None:
        await go.wait()
        await exchange.answer(b"{}")

    go = asyncio.Event()
    async with staged(wait, wait, listen=QUICK) as stage, RawClient(stage.app.port) as client:
        await flood(client, stage, request(body=chat(padding="x" * 30_000)) + HEALTH)
        await asyncio.sleep(0.3)  # sleeps: looks at limits that must find nothing
        go.set()
        assert [(await client.answer()).status for _ in range(3)] == [200, 200, 200]


@leaping
async def test_large_requests_one_after_the_other_are_all_answered() -> None:
    async with staged(listen=QUICK) as stage, RawClient(stage.app.port) as client:
        for _ in range(5):
            await client.send(request(body=chat(padding="x" * 2_000_000)))
            assert (await client.answer()).status == 200


CONNECT = b"CONNECT x:1 HTTP/1.1\r\nhost: x:1\r\n\r\n"
WEBSOCKET = request("/healthz", b"", "connection: upgrade", "upgrade: websocket", method="GET")
H2C = request("/healthz", b"", "connection: upgrade, http2-settings", "upgrade: h2c", method="GET")
UNCHECKED = b"POST /v1/chat/completions HTTP/1.0\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"


@pytest.mark.parametrize(("last", "status"), [(CONNECT, 400), (WEBSOCKET, 200)], ids=["CONNECT", "upgrade"])
@pytest.mark.parametrize("at_once", [True, False], ids=["in one piece", "later"])
async def test_nothing_is_served_behind_a_request_that_would_end_http(last: bytes, status: int, at_once: bool) -> None:
    async with staged() as stage, RawClient(stage.app.port) as client:
        await client.send(HEALTH + last + (UNCHECKED if at_once else b""))
        assert (await client.answer()).header("connection") is None
        said = await client.answer()
        with contextlib.suppress(ConnectionError):
            await client.send(UNCHECKED)
        assert (said.status, said.header("connection"), await client.rest()) == (status, "close", b"")
        assert stage.a.requests == stage.b.requests == []


async def test_offer_of_http_2_is_passed_over_and_the_connection_kept() -> None:
    async with staged() as stage, RawClient(stage.app.port) as client:
        for _ in range(2):
            await client.send(H2C)
            said = await client.answer()
            assert (said.status, said.header("connection")) == (200, None)


def waiting(target: str, *lines: str, method: str = "POST") -> bytes:
    """A request whose body is as long as the next request on the connection, and waits to be asked for."""
    expect = (f"content-length: {len(HEALTH)}", "expect: 100-continue")
    return "\r\n".join((f"{method} {target} HTTP/1.1", "host: x", *lines, *expect, "", "")).encode()


PREFLIGHT = ("origin: http://page.example", "access-control-request-method: GET")


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        (waiting("/healthz", method="GET"), 200),
        (waiting("/v1/models", *PREFLIGHT, method="OPTIONS"), 204),
        (waiting("/v1/nothing"), 404),
        (waiting("/healthz", method="GET").replace(b"expect: 100-continue\r\n", b""), 200),
    ],
    ids=["health", "preflight", "refusal", "health, without Expect"],
)
async def test_answer_that_waits_for_no_body_says_that_the_connection_ends(asked: bytes, status: int) -> None:
    async with staged(listen={"cors_origins": ["*"]}) as stage, RawClient(stage.app.port) as client:
        await client.send(asked)
        said = await client.answer()
        await client.send(HEALTH)  # which is the body by its place, and taken for nothing else
        assert (said.status, said.header("connection"), await client.rest()) == (status, "close", b"")


async def test_health_request_whose_body_has_come_keeps_the_connection() -> None:
    async with staged() as stage, RawClient(stage.app.port) as client:
        for _ in range(2):
            await client.send(request("/healthz", b"x" * 10, "expect: 100-continue", method="GET"))
            said = await client.answer()
            assert (said.status, said.header("connection")) == (200, None)


@pytest.mark.parametrize("target", ["/tokenize", "/v1/chat/completions"])
async def test_body_over_the_limit_ends_the_connection_on_every_route(target: str) -> None:
    async with staged() as stage, RawClient(stage.app.port) as client:
        await client.send(f"POST {target} HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999\r\n\r\n".encode())
        said = await client.answer()
        assert (said.status, said.header("connection")) == (413, "close")

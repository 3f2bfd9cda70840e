"""Request heads that a server of HTTP/1.1 has to wait for, take, or refuse (RFC 9112), as raw bytes. Framing that could
smuggle is in test_headers.py.
"""

import asyncio

import pytest
from fakes.engine import Exchange
from fakes.raw import RawClient
from fakes.stage import staged
from fakes.until import turns

WHOLE = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"
# Where a head may be cut: within each of its words, and around each of its line ends.
CUTS = (1, 3, 4, 10, 15, 19, 23, 24, 25, 28, 30, 31, 36, 40, 41, 42, 43)
TAKEN = {
    "plain": b"GET /v1/models HTTP/1.1\r\nHost: example.com\r\n\r\n",
    "odd case, a tab, an empty value": b"GET /v1/models HTTP/1.1\r\nhoSt:\texample.com\r\nempty:\r\n\r\n",
    "a blank value": b"GET /v1/models HTTP/1.1\r\nHost: example.com\r\nX-Empty: \r\n\r\n",
    "no host": b"GET /v1/models HTTP/1.1\r\nHost:\r\n\r\n",
    "HTTP/1.0 needs none": b"GET /v1/models HTTP/1.0\r\n\r\n",
    "an empty line before": b"\r\nGET /v1/models HTTP/1.1\r\nHost: example.com\r\n\r\n",
    "expect without a body": b"GET /v1/models HTTP/1.1\r\nHost: example.com\r\nExpect: 100-continue\r\n\r\n",
}
REFUSED = {
    "no version": (b"GET / \r\n\r\n", 400),
    "no Host": (b"GET /v1/models HTTP/1.1\r\n\r\n", 400),
    "no Host, with a length": (b"GET /v1/models HTTP/1.1\r\nContent-Length: 5\r\n\r\n", 400),
    "two Hosts": (b"GET /v1/models HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
    "the same Host twice": (b"GET /v1/models HTTP/1.1\r\nHost: a\r\nX-A: 1\r\nhost: a\r\n\r\n", 400),
    "two Hosts of HTTP/1.0": (b"GET /v1/models HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", 400),
    "brackets in a name": (b"GET /v1/models HTTP/1.1\r\nHost: a\r\nX-Invalid[]: test\r\n\r\n", 400),
    "a bell in a value": (b"GET /v1/models HTTP/1.1\r\nHost: a\r\nX-A: test\x07\r\n\r\n", 400),
    "a number no integer holds": (
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -123456789123456789123456789\r\n\r\n",
        400,
    ),
    "a version to come": (b"GET /v1/models HTTP/9.9\r\nHost: a\r\n\r\n", 400),
    "words before": (b"Extra lineGET /v1/models HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "a bare return": (b"GET /v1/models HTTP/1.1\r\nHost: a\r\n\rSome-Header: Test\r\n\r\n", 400),
}
BODIES = {
    "a length": b"Content-Length: 5\r\n\r\nhello",
    "chunks": b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "two chunks": b"Transfer-Encoding: chunked\r\n\r\n2;x=y\r\nhe\r\n3\r\nllo\r\n0\r\nTrailer: 1\r\n\r\n",
}


async def echo(exchange: Exchange) -> None:
    body = exchange.request.body
    await exchange.head("200 OK", f"content-length: {len(body)}")
    await exchange.send(body)


@pytest.mark.parametrize("cut", CUTS)
async def test_h24_a_head_in_two_pieces_is_waited_for(cut: int) -> None:
    async with staged() as stage, RawClient(stage.app.port) as client:
        await client.send(WHOLE[:cut])
        waiting = asyncio.ensure_future(client.head())
        await turns()
        assert not waiting.done()
        await client.send(WHOLE[cut:])
        assert (await waiting).status == 200


@pytest.mark.parametrize("name", TAKEN)
async def test_h24_a_head_that_is_odd_and_right_is_taken(name: str) -> None:
    async with staged() as stage, RawClient(stage.app.port) as client:
        await client.send(TAKEN[name])
        assert (await client.answer()).status in (100, 200)


@pytest.mark.parametrize("name", REFUSED)
async def test_h24_a_head_that_is_wrong_is_refused_and_the_connection_closed(name: str) -> None:
    data, status = REFUSED[name]
    async with staged() as stage, RawClient(stage.app.port) as client:
        await client.send(data)
        assert (await client.answer()).status == status
        assert await client.rest() == b""
        assert not stage.a.requests
        assert not stage.b.requests


@pytest.mark.parametrize("name", BODIES)
async def test_h24_a_body_reaches_the_engine_and_comes_back(name: str) -> None:
    async with staged(a=echo, b=echo) as stage, RawClient(stage.app.port) as client:
        await client.send(b"POST /generate HTTP/1.1\r\nHost: example.com\r\n" + BODIES[name])
        said = await client.answer()
        assert (said.status, said.body) == (200, b"hello")

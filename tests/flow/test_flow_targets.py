"""Which requests are let in and what the engine sees of their target, as raw bytes (H23, H24, H25, H26)."""

import orjson
import pytest
from fakes.engine import Exchange
from fakes.raw import RawClient, ask, chat, request
from fakes.stage import staged
from fakes.until import until

QUERY = "?b=2&a=1&b=3&flag&sig=%E9%FF&s=1;2&q=hello%20world&plus=a+b&empty=&%7e=~"


async def models(exchange: Exchange) -> None:
    await exchange.answer(b'{"object":"list","data":[]}')


async def seen(data: bytes) -> list[str]:
    """The targets that engines saw of some raw bytes."""
    async with staged(a=models, b=models) as stage:
        await ask(stage.app.port, data)
        return [each.target for each in (*stage.a.requests, *stage.b.requests)]


# ---------------------------------------------------------------- byte for byte


@pytest.mark.parametrize(
    "target", ["/v1/models/org%2Fname", "/v1/models/org/name", "/v1/models/a%20b%C3%A9", "/v1/models"]
)
async def test_target_reaches_the_engine_byte_for_byte(target: str) -> None:
    assert await seen(request(target + QUERY, method="GET")) == [target + QUERY]


async def test_query_of_a_post_reaches_the_engine_byte_for_byte() -> None:
    assert await seen(request("/v1/chat/completions" + QUERY, chat())) == ["/v1/chat/completions" + QUERY]


@pytest.mark.parametrize("query", ["?%", "?%zz", "?a=[b]", "?a={b}|^`\"'<>"])
async def test_odd_query_is_passed_as_it_is_or_refused(query: str) -> None:
    async with staged(a=models, b=models) as stage:
        said = await ask(stage.app.port, request("/v1/models" + query, method="GET"))
        passed = [each.target for each in stage.b.requests]
        assert (said.status, passed) in [(200, ["/v1/models" + query]), (400, [])]


@pytest.mark.parametrize("raw", [b"GET /v1/models?q=\xe9\xff HTTP/1.1", b"GET /v1/models/\xc3\xa9 HTTP/1.1"])
async def test_raw_bytes_in_a_target_are_answered_400(raw: bytes) -> None:
    async with staged(a=models, b=models) as stage:
        assert (await ask(stage.app.port, raw + b"\r\nhost: x\r\n\r\n")).status == 400


# ---------------------------------------------------------------- let in, or not


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/v1/unheard-of", 404),
        ("/v1/chat/completions/", 404),
        ("/v1/../flush_cache", 404),
        ("/v1/%2e%2e/flush_cache", 404),
        ("//evil/v1/models", 404),
        ("/flush_cache", 403),
        ("/abort_request", 403),
        ("/update_weights_from_disk", 403),
        ("/%66lush_cache", 404),
        ("http://evil/v1/models", 400),
        ("/v1/models%00", 400),
        ("/v1\\models", 400),
    ],
)
async def test_target_is_refused(target: str, status: int) -> None:
    async with staged(a=models, b=models) as stage:
        assert (await ask(stage.app.port, request(target, method="GET"))).status == status


@pytest.mark.parametrize("target", ["/flush_cache", "/v1/../flush_cache", "//evil/v1/models", "http://evil/v1/models"])
async def test_engine_sees_nothing_of_a_refused_target(target: str) -> None:
    assert await seen(request(target, method="GET")) == []


@pytest.mark.parametrize("target", ["/v1/unheard-of", "/flush_cache", "/v1/realtime"])
async def test_refusal_has_the_openai_shape(target: str) -> None:
    async with staged() as stage:
        error = (await ask(stage.app.port, request(target, method="GET"))).json["error"]
        assert isinstance(error, dict) and set(error) == {"message", "type", "param", "code"}


async def test_wrong_method_is_told_the_right_ones() -> None:
    async with staged() as stage:
        said = await ask(stage.app.port, request("/v1/chat/completions", method="GET"))
        assert (said.status, said.header("allow")) == (405, "POST")


async def test_connection_stays_usable_after_a_refused_target() -> None:
    async with staged() as stage, RawClient(stage.app.port) as client:
        await client.send(request("/v1/unheard-of", method="GET"))
        await client.answer()
        await client.send(request(body=chat()))
        assert (await client.answer()).status == 200


async def test_connect_is_no_tunnel() -> None:
    async with staged() as stage:
        assert (await ask(stage.app.port, b"CONNECT evil:443 HTTP/1.1\r\nhost: evil:443\r\n\r\n")).status in (
            400,
            404,
            405,
        )


async def test_websocket_is_refused_with_501() -> None:
    lines = ("connection: Upgrade", "upgrade: websocket", "sec-websocket-version: 13", "sec-websocket-key: eA==")
    async with staged() as stage:
        assert (await ask(stage.app.port, request("/v1/models", b"", *lines, method="GET"))).status == 501


async def test_connection_closes_after_a_refused_upgrade() -> None:
    lines = ("connection: Upgrade", "upgrade: websocket", "sec-websocket-version: 13", "sec-websocket-key: eA==")
    async with staged() as stage, RawClient(stage.app.port) as client:
        await client.send(request("/v1/realtime", b"", *lines, method="GET"))
        await client.answer()
        assert await client.rest() == b""


async def test_offer_of_http2_is_passed_over() -> None:
    """Java's own client offers it with every first request, body and all."""
    lines = ("connection: Upgrade, HTTP2-Settings", "upgrade: h2c", "http2-settings: AAMAAABk")
    async with staged() as stage:
        said = await ask(stage.app.port, request("/v1/chat/completions", chat(), *lines))
        assert (said.status, stage.a.requests[0].body) == (200, chat())


# ---------------------------------------------------------------- broken framing

CHAT = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n"
SMUGGLED = b"GET /v1/models/smuggled HTTP/1.1\r\nhost: x\r\n\r\n"
BROKEN = {
    "length and chunked": CHAT + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "two lengths": CHAT + b"content-length: 2\r\ncontent-length: 50\r\n\r\n{}" + SMUGGLED,
    "length with sign": CHAT + b"content-length: +2\r\n\r\n{}" + SMUGGLED,
    "length list": CHAT + b"content-length: 2, 2\r\n\r\n{}" + SMUGGLED,
    "chunk size no number": CHAT + b"transfer-encoding: chunked\r\n\r\n1zz\r\n{}\r\n0\r\n\r\n" + SMUGGLED,
    "chunk size with 0x": CHAT + b"transfer-encoding: chunked\r\n\r\n0x2\r\n{}\r\n0\r\n\r\n" + SMUGGLED,
    "chunk longer than said": CHAT + b"transfer-encoding: chunked\r\n\r\n2\r\n{}xx\r\n0\r\n\r\n" + SMUGGLED,
    "space before colon": CHAT + b"transfer-encoding : chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "chunked not last": CHAT + b"transfer-encoding: chunked, gzip\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "unknown coding": CHAT + b"transfer-encoding: xchunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "folded header": CHAT + b"x-a: 1\r\n 2\r\ncontent-length: 2\r\n\r\n{}" + SMUGGLED,
    "cr in a value": CHAT + b"x-a: 1\r2\r\ncontent-length: 2\r\n\r\n{}" + SMUGGLED,
    "nul in a value": CHAT + b"x-a: 1\x002\r\ncontent-length: 2\r\n\r\n{}" + SMUGGLED,
    "no http": b"\x16\x03\x01 hello\r\n\r\n",
    "wrong version": b"GET /v1/models HTTP/9.9\r\nhost: x\r\n\r\n",
}
BROKEN_IDS = [name.replace(" ", "_") for name in BROKEN]


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN_IDS)
async def test_broken_framing_is_answered_400_in_our_shape(data: bytes) -> None:
    async with staged(a=models, b=models) as stage:
        said = await ask(stage.app.port, data)
        assert (said.status, list(orjson.loads(said.body))) == (400, ["error"])


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN_IDS)
async def test_connection_closes_after_broken_framing(data: bytes) -> None:
    async with staged(a=models, b=models) as stage, RawClient(stage.app.port) as client:
        await client.send(data)
        await client.answer()
        assert await client.rest() == b""


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN_IDS)
async def test_engine_sees_nothing_of_broken_framing(data: bytes) -> None:
    async with staged(a=models, b=models) as stage:
        async with RawClient(stage.app.port) as client:
            await client.send(data)
            await client.answer()
            await client.rest()
        assert not stage.a.requests and not stage.b.requests


async def test_refusal_quotes_nothing_of_the_broken_request() -> None:
    async with staged() as stage:
        said = await ask(stage.app.port, CHAT + b"x-secret: sesame\x00\r\n\r\n")
        assert b"sesame" not in said.body


# ---------------------------------------------------------------- sizes


async def test_body_over_the_limit_is_refused_before_it_is_sent() -> None:
    async with staged(listen={"max_body_bytes": 2048}) as stage, RawClient(stage.app.port) as client:
        await client.send(CHAT + b"content-length: 2049\r\n\r\n")
        assert (await client.answer()).status == 413


async def test_chunked_body_is_refused_once_it_is_over_the_limit() -> None:
    async with staged(listen={"max_body_bytes": 2048}) as stage, RawClient(stage.app.port) as client:
        await client.send(CHAT + b"transfer-encoding: chunked\r\n\r\n" + 3 * (b"400\r\n" + 1024 * b"x" + b"\r\n"))
        assert (await client.answer()).status == 413


async def test_connection_closes_after_a_body_over_the_limit() -> None:
    async with staged(listen={"max_body_bytes": 2048}) as stage, RawClient(stage.app.port) as client:
        await client.send(CHAT + b"content-length: 4096\r\n\r\n" + 4096 * b"x")
        assert (await client.answer()).header("connection") == "close" and await client.rest() == b""


async def test_body_over_the_limit_is_read_far_enough_for_its_client_to_see_the_answer() -> None:
    """Closing at once would reset the connection under a client that is still writing."""
    async with staged(listen={"max_body_bytes": 2048}) as stage, RawClient(stage.app.port) as client:
        await client.send(CHAT + b"content-length: 8388608\r\n\r\n")
        for _ in range(8):
            await client.send((1 << 20) * b"x")
        assert (await client.answer()).status == 413


@pytest.mark.parametrize("size_bytes", [0, 1, 2048])
async def test_body_within_the_limit_reaches_the_engine(size_bytes: int) -> None:
    async with staged(listen={"max_body_bytes": 2048}) as stage:
        await ask(stage.app.port, request(body=size_bytes * b"x"))
        assert len(stage.a.requests[0].body) == size_bytes


async def test_large_body_reaches_the_engine_whole() -> None:
    body = chat(image="x" * (12 << 20))
    async with staged() as stage:
        await ask(stage.app.port, request(body=body))
        assert stage.a.requests[0].body == body


async def test_chunked_body_reaches_the_engine_whole() -> None:
    async with staged() as stage, RawClient(stage.app.port) as client:
        body = chat()
        await client.send(CHAT + b"transfer-encoding: chunked\r\n\r\n")
        for start in range(0, len(body), 10):
            piece = body[start : start + 10]
            await client.send(b"%x;ext=1\r\n%b\r\n" % (len(piece), piece))
        await client.send(b"0\r\n\r\n")
        await client.answer()
        assert stage.a.requests[0].body == body


# ---------------------------------------------------------------- expect, head, pipelining


async def test_client_that_asks_is_told_to_send_its_body() -> None:
    async with staged() as stage, RawClient(stage.app.port) as client:
        await client.send(CHAT + b"expect: 100-continue\r\ncontent-length: %d\r\n\r\n" % len(chat()))
        assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"


async def test_answer_follows_after_an_interim_one() -> None:
    async with staged() as stage, RawClient(stage.app.port) as client:
        await client.send(CHAT + b"expect: 100-continue\r\ncontent-length: %d\r\n\r\n" % len(chat()))
        await client.reader.readuntil(b"\r\n\r\n")
        await client.send(chat())
        said = await client.answer()
        assert (said.status, stage.a.requests[0].header("expect")) == (200, None)


async def test_body_over_the_limit_is_not_asked_for() -> None:
    async with staged(listen={"max_body_bytes": 2048}) as stage, RawClient(stage.app.port) as client:
        await client.send(CHAT + b"expect: 100-continue\r\ncontent-length: 4096\r\n\r\n")
        assert (await client.head()).status == 413


async def test_error_of_ours_after_an_interim_answer_is_whole() -> None:
    async def reset(exchange: Exchange) -> None:
        exchange.reset()

    async with staged(a=reset, b=reset) as stage, RawClient(stage.app.port) as client:
        await client.send(CHAT + b"expect: 100-continue\r\ncontent-length: %d\r\n\r\n" % len(chat()))
        await client.reader.readuntil(b"\r\n\r\n")
        await client.send(chat())
        assert (await client.answer()).status == 502


async def test_pipelined_requests_are_answered_in_their_order() -> None:
    async with staged() as stage, RawClient(stage.app.port) as client:
        await client.send(request(body=chat()) + request("/v1/unheard-of", method="GET") + request(body=chat()))
        assert [(await client.answer()).status for _ in range(3)] == [200, 404, 200]


async def test_connection_is_kept_for_many_requests() -> None:
    async with staged() as stage, RawClient(stage.app.port) as client:
        for _ in range(20):
            await client.send(request(body=chat()))
            assert (await client.answer()).whole


LATE = [b"1zz\r\n{}\r\n0\r\n\r\n", b"2\r\n{}xx\r\n0\r\n\r\n", b"\r\n\r\n", b"-1\r\n"]


@pytest.mark.parametrize("chunk", LATE)
async def test_framing_that_breaks_in_mid_body_is_answered_400(chunk: bytes) -> None:
    async with staged() as stage, RawClient(stage.app.port) as client:
        await client.send(CHAT + b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n")
        await until(lambda: stage.app.relay.trips, what="the request being read")
        await client.send(chunk)
        said = await client.answer()
        assert (said.status, list(said.json), await client.rest()) == (400, ["error"], b"")


@pytest.mark.parametrize("chunk", LATE)
async def test_engine_sees_nothing_of_framing_that_breaks_in_mid_body(chunk: bytes) -> None:
    async with staged() as stage, RawClient(stage.app.port) as client:
        await client.send(CHAT + b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n")
        await until(lambda: stage.app.relay.trips, what="the request being read")
        await client.send(chunk + SMUGGLED)
        await client.answer()
        await client.rest()
        assert not stage.a.requests and not stage.b.requests

"""H24: what of keys, headers, framing and paths crosses the proxy, each line of the case as raw bytes."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from fakes.dialects import SAMPLES, Sample
from fakes.engine import Exchange, FakeEngine, Request, either
from fakes.proxy import running, settings
from fakes.raw import RawClient, Said, ask, chat, request
from fakes.stage import staged
from fakes.until import turns, until

from proxy.protocol.allowlist import REFUSED
from proxy.protocol.routes import EngineKind

ENGINE_KEY = "key-of-the-engine"
KEYS = (
    "Authorization: Bearer key-of-the-client",
    "X-Api-Key: key-of-the-client",
    "Api-Key: key-of-the-client",
    "X-Goog-Api-Key: key-of-the-client",
    "Cookie: session=key-of-the-client",
)
PROXY_KEY = "Proxy-Authorization: Basic key-of-the-client"
TARGETS: dict[str, tuple[str, str, bytes]] = {
    "chat": ("POST", "/v1/chat/completions", chat()),
    "stream": ("POST", "/v1/chat/completions", chat(stream=True)),
    "messages": ("POST", "/v1/messages", chat()),
    "question": ("GET", "/v1/models", b""),
    "tokenize": ("POST", "/tokenize", b'{"prompt":"x"}'),
}
EVERYWHERE = pytest.mark.parametrize("name", TARGETS)
VERSIONS = pytest.mark.parametrize("version", ["1.0", "1.1"])
ENGINES = list(EngineKind)


def to(name: str, *lines: str, **how: Any) -> bytes:
    method, target, body = TARGETS[name]
    return request(target, body, *lines, method=method, **how)


def values(pairs: list[tuple[str, str]], name: str) -> list[str]:
    return [value for key, value in pairs if key.lower() == name]


def seen(*engines: FakeEngine) -> list[Request]:
    return [each for engine in engines for each in engine.requests]


@contextlib.asynccontextmanager
async def keyed(a: FakeEngine, b: FakeEngine) -> AsyncIterator[int]:
    """The port of a proxy that has a key for each engine."""
    backends = {"speculative": {"url": a.url, "api_key": ENGINE_KEY}, "baseline": {"url": b.url, "api_key": ENGINE_KEY}}
    async with a, b:
        backends["speculative"]["url"], backends["baseline"]["url"] = a.url, b.url
        async with running(settings(a.url, b.url, backends=backends)) as app:
            yield app.port


# ---------------------------------------------------------------- keys


@EVERYWHERE
@VERSIONS
async def test_h24_clients_key_goes_to_engines_that_own_it_and_the_proxys_own_password_never(
    name: str, version: str
) -> None:
    async with staged() as stage:
        await ask(stage.app.port, to(name, *KEYS, PROXY_KEY, version=version))
        [one] = seen(stage.a, stage.b)
        for line in KEYS:
            key, _, value = line.partition(": ")
            assert values(one.headers, key.lower()) == [value]
        assert values(one.headers, "proxy-authorization") == []


@EVERYWHERE
@VERSIONS
async def test_h24_engines_key_takes_the_place_of_every_key_of_the_client(name: str, version: str) -> None:
    a, b = FakeEngine(), FakeEngine(role="baseline")
    async with keyed(a, b) as port:
        for lines in ((), KEYS, (*KEYS, *KEYS, PROXY_KEY)):
            await ask(port, to(name, *lines, version=version))
        for one in seen(a, b):
            assert values(one.headers, "authorization") == [f"Bearer {ENGINE_KEY}"]
            assert not any("key-of-the-client" in value for _, value in one.headers)
        assert len(seen(a, b)) == 3


@EVERYWHERE
async def test_h24_second_attempt_carries_the_engines_key_and_no_other(name: str) -> None:
    async def reset(exchange: Exchange) -> None:
        exchange.reset()

    for scripts in ((reset, either), (either, reset)):
        a, b = FakeEngine(script=scripts[0]), FakeEngine(script=scripts[1], role="baseline")
        async with keyed(a, b) as port:
            assert (await ask(port, to(name, *KEYS))).status == 200
            for one in seen(a, b):
                assert values(one.headers, "authorization") == [f"Bearer {ENGINE_KEY}"]


FAULTS: dict[str, bytes | None] = {
    "reset": None,
    "garbage": b"garbage\r\n\r\n",
    "401": b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\nwww-authenticate: Bearer\r\n\r\n",
    "500": b"HTTP/1.1 500 Oh\r\ncontent-length: 0\r\n\r\n",
    "cut": b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: {}\n\ndata: {",
}


@EVERYWHERE
@pytest.mark.parametrize("fault", FAULTS)
async def test_h24_engines_key_is_never_in_what_the_client_gets(name: str, fault: str) -> None:
    async def fail(exchange: Exchange) -> None:
        if (said := FAULTS[fault]) is None:
            return exchange.reset()
        await exchange.send(said)
        return exchange.writer.close()

    a, b = FakeEngine(script=fail), FakeEngine(script=fail, role="baseline")
    async with keyed(a, b) as port, RawClient(port) as one:
        await one.send(to(name, "connection: close"))
        got = await one.rest()
        assert got.startswith(b"HTTP/1.1 ")
        assert ENGINE_KEY.encode() not in got
        asked = seen(a, b)
        assert asked and all(values(each.headers, "authorization") == [f"Bearer {ENGINE_KEY}"] for each in asked)


# ---------------------------------------------------------------- hop by hop

HOP = (
    "Connection: close, X-Hop",
    "connection: X-Other",
    "X-Hop: 1",
    "X-Other: 1",
    "Keep-Alive: timeout=5",
    "TE: trailers",
    "Trailer: X-T",
    "Proxy-Connection: keep-alive",
    "Upgrade: h2c",
)
HOP_NAMES = {line.partition(":")[0].lower() for line in HOP}


@EVERYWHERE
@VERSIONS
async def test_h24_hop_by_hop_headers_do_not_reach_the_engine(name: str, version: str) -> None:
    async with staged() as stage:
        said = await ask(stage.app.port, to(name, *HOP, "X-Kept: 1", version=version))
        [one] = seen(stage.a, stage.b)
        names = {key.lower() for key, _ in one.headers}
        assert said.status == 200
        assert not names & HOP_NAMES
        assert "x-kept" in names


@EVERYWHERE
@VERSIONS
@pytest.mark.parametrize("framing", ["length", "chunked", "closing"])
async def test_h24_hop_by_hop_headers_do_not_reach_the_client(name: str, version: str, framing: str) -> None:
    """The engine answers with the same, around each of the three framings; ours are of our own connection."""

    async def answer(exchange: Exchange) -> None:
        lines = [line for line in HOP if not line.lower().startswith("connection")]
        lines += ["Connection: X-Hop, X-Other", "Proxy-Authenticate: Basic", "X-Kept: 1"]
        if framing == "length":
            await exchange.head("200 OK", *lines, "content-length: 2")
            await exchange.send(b"{}")
        elif framing == "chunked":
            await exchange.head("200 OK", *lines, "transfer-encoding: chunked")
            await exchange.chunk(b"{}")
            await exchange.end()
        else:
            await exchange.head("200 OK", *lines)
            await exchange.send(b"{}")
            exchange.writer.close()

    async with staged(answer, answer) as stage:
        said = await ask(stage.app.port, to(name, version=version))
        assert (said.status, said.body, said.whole, said.header("x-kept")) == (200, b"{}", True, "1")
        assert not {key.lower() for key, _ in said.headers} & (HOP_NAMES | {"proxy-authenticate"}) - {"connection"}
        assert "x-hop" not in (said.header("connection") or "").lower()


@VERSIONS
async def test_h24_connection_cannot_take_away_what_the_engine_must_know(version: str) -> None:
    async with staged() as stage:
        line = "Connection: X-Forwarded-For, Host, Content-Length, X-Request-Id"
        await ask(stage.app.port, to("chat", line, "X-Forwarded-For: 10.0.0.1", version=version))
        [one] = seen(stage.a)
        assert values(one.headers, "x-forwarded-for") == ["10.0.0.1, 127.0.0.1"]
        assert (len(values(one.headers, "x-request-id")), one.body) == (1, chat())


# ---------------------------------------------------------------- who asks, and whom


@EVERYWHERE
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_h24_host_is_the_engines_and_our_peer_ends_the_one_line_of_hops(name: str, host: str) -> None:
    lines = (
        "X-Forwarded-For: 6.6.6.6",
        "x-forwarded-for: 7.7.7.7, 8.8.8.8",
        "X-Forwarded-Host: evil.example",
        "Via: 1.1 edge",
    )
    async with staged(host=host, listen={"host": host}) as stage, RawClient(stage.app.port, host) as client:
        await client.send(to(name, *lines, host="169.254.169.254"))
        assert (await client.answer()).status == 200
        [one] = seen(stage.a, stage.b)
        shown = f"[{host}]" if ":" in host else host
        assert values(one.headers, "host") in ([f"{shown}:{stage.a.port}"], [f"{shown}:{stage.b.port}"])
        assert values(one.headers, "x-forwarded-for") == [f"6.6.6.6, 7.7.7.7, 8.8.8.8, {host}"]
        assert values(one.headers, "via") == ["1.1 edge"]
        assert values(one.headers, "x-forwarded-host") == ["evil.example"]


@pytest.mark.parametrize("second", ["host: 169.254.169.254", "Host: 127.0.0.1", "host:"])
@EVERYWHERE
async def test_h24_two_hosts_get_400_and_reach_no_engine(name: str, second: str) -> None:
    async with staged() as stage:
        said = await ask(stage.app.port, to(name, second))
        assert (said.status, seen(stage.a, stage.b)) == (400, [])


# ---------------------------------------------------------------- broken framing

SMUGGLED = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}"
LATER = b"0\r\n\r\n" + SMUGGLED
# Header lines and what follows them.
FRAMING: dict[str, tuple[bytes, bytes]] = {
    "length and chunked": (b"content-length: 5\r\ntransfer-encoding: chunked\r\n", LATER),
    "chunked and length": (b"transfer-encoding: chunked\r\ncontent-length: 5\r\n", LATER),
    "two lengths": (b"content-length: 2\r\ncontent-length: 60\r\n", b"{}" + SMUGGLED),
    "two lengths in one": (b"content-length: 2, 60\r\n", b"{}" + SMUGGLED),
    "negative length": (b"content-length: -2\r\n", b"{}" + SMUGGLED),
    "length with a letter": (b"content-length: 2x\r\n", b"{}" + SMUGGLED),
    "length in hex": (b"content-length: 0x2\r\n", b"{}" + SMUGGLED),
    "chunk size 1zz": (b"transfer-encoding: chunked\r\n", b"1zz\r\n{}\r\n" + LATER),
    "chunk size negative": (b"transfer-encoding: chunked\r\n", b"-2\r\n{}\r\n" + LATER),
    "chunk size empty": (b"transfer-encoding: chunked\r\n", b"\r\n{}\r\n" + LATER),
    "chunk size of 17 digits": (b"transfer-encoding: chunked\r\n", b"10000000000000002\r\n{}\r\n" + LATER),
    "chunk without its line end": (b"transfer-encoding: chunked\r\n", b"2\r\n{}" + LATER),
    "space before the colon": (b"transfer-encoding : chunked\r\n", LATER),
    "tab before the colon": (b"transfer-encoding\t: chunked\r\n", LATER),
    "two codings": (b"transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n", LATER),
    "chunked twice": (b"transfer-encoding: chunked, chunked\r\n", LATER),
    "chunked in quotes": (b'transfer-encoding: "chunked"\r\n', LATER),
    "vertical tab": (b"transfer-encoding: \x0bchunked\r\n", LATER),
    "folded": (b"x-a: 1\r\n content-length: 60\r\ncontent-length: 2\r\n", b"{}" + SMUGGLED),
    "folded first": (b" content-length: 60\r\ncontent-length: 2\r\n", b"{}" + SMUGGLED),
    "cr in a value": (b"x-a: 1\rcontent-length: 60\r\ncontent-length: 2\r\n", b"{}" + SMUGGLED),
    "bare lf in a head": (b"x-a: 1\ncontent-length: 60\r\ncontent-length: 2\r\n", b"{}" + SMUGGLED),
    "nul in a name": (b"x-\x00a: 1\r\ncontent-length: 2\r\n", b"{}" + SMUGGLED),
    "no colon": (b"x-a\r\ncontent-length: 2\r\n", b"{}" + SMUGGLED),
    "no name": (b": 1\r\ncontent-length: 2\r\n", b"{}" + SMUGGLED),
}
PATHS = {"generates": b"/v1/chat/completions", "asks": b"/tokenize"}


def broken(framing: str, path: bytes) -> bytes:
    lines, after = FRAMING[framing]
    return b"POST " + path + b" HTTP/1.1\r\nhost: x\r\n" + lines + b"\r\n" + after


@pytest.mark.parametrize("framing", FRAMING)
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("warm", [False, True], ids=["new", "kept"])
async def test_h24_malformed_framing_gets_400_and_a_closed_connection_and_no_second_request(
    framing: str, path: str, warm: bool
) -> None:
    async with staged() as stage, RawClient(stage.app.port) as client:
        if warm:
            await client.send(to("chat"))
            assert (await client.answer()).status == 200
        await client.send(broken(framing, PATHS[path]))
        said = await client.answer()
        error: Any = said.json["error"]
        assert (said.status, set(error)) == (400, {"message", "type", "param", "code"})
        assert await client.rest() == b""
        await until(lambda: not stage.app.relay.trips, what="the request over")
        assert [one.target for one in seen(stage.a, stage.b)] == ["/v1/chat/completions"] * warm


@pytest.mark.parametrize("framing", FRAMING)
async def test_h24_malformed_framing_behind_a_good_request_is_not_another(framing: str) -> None:
    """In one write. The good one may be answered first, or fall with what follows it."""
    async with staged() as stage, RawClient(stage.app.port) as client:
        await client.send(to("chat") + broken(framing, PATHS["generates"]))
        statuses = [(await client.answer()).status]
        if statuses == [200]:
            statuses.append((await client.answer()).status)
        assert statuses[-1] == 400
        assert await client.rest() == b""
        assert len(seen(stage.a, stage.b)) == len(statuses) - 1


POST = b"POST /v1/chat/completions HTTP/1.1"
CHUNKED = POST + b"\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
BARE = {
    "every line": POST + b"\nhost: x\ncontent-length: 2\n\n{}",
    "the request line": POST + b"\nhost: x\r\ncontent-length: 2\r\n\r\n{}",
    "the end of the head": POST + b"\r\nhost: x\r\ncontent-length: 2\r\n\n{}",
    "a chunk size": CHUNKED + b"2\n{}\r\n0\r\n\r\n",
    "a chunk": CHUNKED + b"2\r\n{}\n0\r\n\r\n",
    "the last chunk": CHUNKED + b"2\r\n{}\r\n0\n\n",
}


@pytest.mark.parametrize("place", BARE)
async def test_h24_bare_line_feed_gets_400_and_a_closed_connection(place: str) -> None:
    async with staged() as stage, RawClient(stage.app.port) as client:
        await client.send(BARE[place] + SMUGGLED)
        assert (await client.answer()).status == 400
        assert await client.rest() == b""
        assert seen(stage.a, stage.b) == []


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("extra", [b"", b"content-length: 5\r\n"], ids=["chunked", "both"])
async def test_h24_chunked_body_of_an_http_1_0_client_gets_400_and_a_closed_connection(path: str, extra: bytes) -> None:
    """HTTP/1.0 has no chunks: whoever stands before us reads the end of such a body elsewhere (RFC 9112, 6.1)."""
    async with staged() as stage, RawClient(stage.app.port) as client:
        head = b"POST " + PATHS[path] + b" HTTP/1.0\r\nhost: x\r\nconnection: keep-alive\r\n" + extra
        await client.send(head + b"transfer-encoding: chunked\r\n\r\n" + LATER)
        assert (await client.answer()).status == 400
        assert await client.rest() == b""
        assert seen(stage.a, stage.b) == []


# ---------------------------------------------------------------- request lines

CLIMBING = {
    "/v1/../admin": 404,
    "/v1/%2e%2e/flush_cache": 404,
    "//evil/v1/models": 404,
    "http://evil/v1/models": 400,
    "/v1/models/..;/flush_cache": 404,
    "/metrics/..;/flush_cache": 404,
    "/v1/models/%252e%252e/flush_cache": 404,
    "/v1/models/x%2f..%2f..%2fflush_cache": 404,
    "/v1/models/..%5cflush_cache": 400,
    "/v1/models/%c0%ae%c0%ae/flush_cache": 400,
    "/V1/MODELS": 404,
    "/flush_cache/": 404,
    "/flush_cache%20": 404,
    "/flush_cache;x": 404,
    "/flush_cache?x": 403,
    "/hicache/storage-backend": 403,
}


@pytest.mark.parametrize("target", CLIMBING)
@pytest.mark.parametrize("method", ["GET", "POST"])
@VERSIONS
async def test_h24_path_that_is_not_listed_reaches_no_engine(target: str, method: str, version: str) -> None:
    async with staged() as stage:
        said = await ask(stage.app.port, request(target, method=method, version=version))
        assert (said.status, seen(stage.a, stage.b)) == (CLIMBING[target], [])
        error: Any = said.json["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert not said.header("location")


async def test_h24_connect_reaches_nobody() -> None:
    async with staged() as stage, RawClient(stage.app.port) as client:
        await client.send(b"CONNECT 127.0.0.1:%d HTTP/1.1\r\nhost: x\r\n\r\n" % stage.a.port)
        assert 400 <= (await client.answer()).status < 500
        await turns(20)
        assert seen(stage.a, stage.b) == []


# What the proxy itself asks an engine of the other kind.
ASKED_BY_US = ("/metrics", "/version", "/v1/models", "/props", "/slots")
# Some of them by name, whatever the product's own list says: what they do cannot be taken back.
DANGEROUS = {
    EngineKind.SGLANG: {
        "/abort_request",
        "/flush_cache",
        "/update_weights_from_disk",
        "/update_weights_from_tensor",
        "/update_weights_from_distributed",
        "/load_lora_adapter",
        "/pause_generation",
        "/release_memory_occupation",
        "/set_internal_state",
        "/open_session",
        "/hicache/storage-backend",
    },
    EngineKind.VLLM: {
        "/abort_requests",
        "/collective_rpc",
        "/reset_prefix_cache",
        "/sleep",
        "/pause",
        "/update_weights",
        "/update_weights_from_disk",
        "/v1/load_lora_adapter",
        "/server_info",
    },
    EngineKind.LLAMACPP: {
        "/slots",
        "/slots/0",
        "/lora-adapters",
        "/v1/chat/completions/control",
        "/v1/stream",
        "/v1/stream/abc",
        "/models/unload",
    },
    EngineKind.OPENAI: set(),
}


@pytest.mark.parametrize("engine", ENGINES)
async def test_h24_no_route_that_controls_the_engine_is_reachable_by_any_method(engine: EngineKind) -> None:
    async with FakeEngine() as a, FakeEngine(role="baseline") as b:
        backends = {
            "speculative": {"url": a.url, "engine": engine.value},
            "baseline": {"url": b.url, "engine": engine.value},
        }
        async with running(settings(a.url, b.url, backends=backends)) as app, RawClient(app.port) as client:
            for path in sorted(REFUSED[engine] | DANGEROUS[engine]):
                for method in ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS"):
                    await client.send(request(path, method=method))
                    said = await client.answer(bodiless=method == "HEAD")
                    assert said.status == 403, (method, path)
        assert [one.target for one in seen(a, b) if one.target not in ASKED_BY_US] == []


# ---------------------------------------------------------------- redirects


@EVERYWHERE
@VERSIONS
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_h24_redirect_passes_with_its_location_and_is_not_followed(name: str, version: str, status: int) -> None:
    async with FakeEngine() as elsewhere:
        locations = [f"{elsewhere.url}/v1/models", "/v1/chat/completions/", "//evil.example/%2F?a=b;c"]

        async def away(exchange: Exchange) -> None:
            where = locations[len(seen(stage.a, stage.b)) - 1]
            await exchange.answer(b"{}", f"{status} Elsewhere", f"location: {where}")

        async with staged(away, away) as stage:
            for where in locations:
                said = await ask(stage.app.port, to(name, version=version))
                assert (said.status, values(said.headers, "location"), said.body) == (status, [where], b"{}")
            assert len(seen(stage.a, stage.b)) == len(locations)
        assert elsewhere.requests == []


# ---------------------------------------------------------------- every dialect


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.dialect.value)
async def test_h24_headers_of_every_dialects_stream_are_cleaned_both_ways(sample: Sample) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.head(
            "200 OK",
            f"content-type: {sample.content_type}",
            "transfer-encoding: chunked",
            "connection: x-hop",
            "x-hop: 1",
            "trailer: x-t",
        )
        for event in (*sample.events, sample.end):
            await exchange.chunk(event)
        await exchange.send(b"0\r\nx-t: a\r\n\r\n")

    async with staged(answer) as stage:
        said: Said = await ask(stage.app.port, request(sample.target, sample.body, *HOP, PROXY_KEY))
        assert said.body == b"".join(sample.events) + sample.end
        assert said.header("x-hop") is None and said.header("trailer") is None
        assert not {key.lower() for key, _ in stage.a.requests[0].headers} & HOP_NAMES


async def test_h24_answer_of_ours_quotes_nothing_of_a_broken_request() -> None:
    async with staged() as stage:
        for framing in FRAMING:
            said = await ask(stage.app.port, broken(framing, b"/v1/sesame?sesame").replace(b"x-a", b"x-sesame"))
            assert b"sesame" not in said.body + orjson.dumps(said.headers)

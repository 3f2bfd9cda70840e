"""H25 and H26: the target reaches the engine byte for byte; browsers, probes and upgrades get an answer at once."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from fakes.engine import Exchange, FakeEngine, either
from fakes.keys import write_keys
from fakes.proxy import running, settings
from fakes.raw import RawClient, Said, ask, chat, request
from fakes.stage import staged
from fakes.until import turns

from proxy.protocol.allowlist import ROUTES, UPGRADE_PATHS, Route
from proxy.protocol.routes import LIVENESS_PATHS, READINESS_PATHS, EngineKind

QUERY = "?b=2&a=1&b=3&flag&sig=%E9%FF&s=1;2&q=hello%20world"
MODEL = "/v1/models/org%2Fname"
# What the proxy itself asks of engines: the same paths come without a query of ours.
OTHER_QUERIES = ["?a=b?c=d", "?&&=", "?a=+%2B%20", "?x=", "??", "?a=%2e%2e/..//", "?%C3%A9=%c3%a9", "?" + "k=v&" * 2000]


@contextlib.asynccontextmanager
async def proxied(engine: EngineKind = EngineKind.SGLANG) -> AsyncIterator[tuple[int, FakeEngine, FakeEngine]]:
    """The port of a proxy before two engines of a kind, which it does not watch."""
    async with FakeEngine() as a, FakeEngine(role="baseline") as b:
        backends = {
            "speculative": {"url": a.url, "engine": engine.value},
            "baseline": {"url": b.url, "engine": engine.value},
        }
        async with running(settings(a.url, b.url, backends=backends, health={"interval_s": 300})) as app:
            yield app.port, a, b


def targets(*engines: FakeEngine) -> list[str]:
    """The targets with a query or a model that engines saw: those that a client sent."""
    return [one.target for engine in engines for one in engine.requests if "?" in one.target or "%" in one.target]


# ---------------------------------------------------------------- H25: byte for byte


@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_h25_engine_sees_the_target_of_the_case_byte_for_byte(version: str, host: str) -> None:
    async with staged(host=host) as stage:
        await ask(stage.app.port, request(MODEL + QUERY, method="GET", version=version))
        assert targets(stage.a, stage.b) == [MODEL + QUERY]
        stage.b.requests.clear()
        for body in (chat(), chat(stream=True)):
            await ask(stage.app.port, request("/v1/chat/completions" + QUERY, body, version=version))
        assert targets(stage.a, stage.b) == ["/v1/chat/completions" + QUERY] * 2


@pytest.mark.parametrize("engine", EngineKind)
async def test_h25_engine_sees_the_query_byte_for_byte_on_every_path_that_is_forwarded(engine: EngineKind) -> None:
    async with proxied(engine) as (port, a, b):
        for row in ROUTES[engine]:
            path = filled(row)
            for method in sorted(row.methods):
                a.requests.clear()
                b.requests.clear()
                data = request(path + QUERY, b"{}" if method in ("POST", "PUT") else b"", method=method)
                said = await ask(port, data, bodiless=method == "HEAD")
                assert (said.status, targets(a, b)) == (200, [path + QUERY]), (method, path)


def filled(row: Route) -> str:
    return row.template.partition("{")[0] + ("org%2Fname" if "{" in row.template else "")


@pytest.mark.parametrize("query", OTHER_QUERIES, ids=lambda query: query[:20])
@pytest.mark.parametrize("path", ["/v1/models", MODEL, "/v1/chat/completions", "/generate"])
async def test_h25_query_of_any_shape_reaches_the_engine_as_it_is(path: str, query: str) -> None:
    async with staged() as stage:
        post = path in ("/v1/chat/completions", "/generate")
        await ask(stage.app.port, request(path + query, chat() if post else b"", method="POST" if post else "GET"))
        assert targets(stage.a, stage.b) == [path + query]


@pytest.mark.parametrize("path", ["/v1/models", "/v1/chat/completions"])
async def test_h25_query_that_is_only_its_mark_keeps_it(path: str) -> None:
    async with staged() as stage:
        post = path != "/v1/models"
        await ask(stage.app.port, request(path + "?", chat() if post else b"", method="POST" if post else "GET"))
        assert targets(stage.a, stage.b) == [path + "?"]


@pytest.mark.parametrize(
    "name", ["org%2Fname", "org%2fname", "org/name", "a%20b", "%7Ea", "~a", "a:b@c", "a;b=c", "a,b", "100%25", "%E9%FF"]
)
async def test_h25_name_of_a_model_reaches_the_engine_in_its_own_spelling(name: str) -> None:
    async with staged() as stage:
        await ask(stage.app.port, request(f"/v1/models/{name}?x", method="GET"))
        assert targets(stage.a, stage.b) == [f"/v1/models/{name}?x"]


@pytest.mark.parametrize("stream", [True, False])
async def test_h25_second_attempt_has_the_same_target(stream: bool) -> None:
    async def reset(exchange: Exchange) -> None:
        exchange.reset()

    async with staged(a=reset) as stage:
        said = await stage.ask(target="/v1/chat/completions" + QUERY, stream=stream)
        assert said.status == 200
        assert targets(stage.a, stage.b) == ["/v1/chat/completions" + QUERY] * 2


@pytest.mark.parametrize("engine", EngineKind)
async def test_h25_trailing_slash_is_404_and_never_a_redirect(engine: EngineKind) -> None:
    async with proxied(engine) as (port, a, b):
        for row in ROUTES[engine]:
            if row.template == "/":
                continue
            method = min(row.methods - {"HEAD"})
            said = await ask(port, request(filled(row) + "/", b"{}" if method == "POST" else b"", method=method))
            assert (said.status, said.header("location")) == (404, None), row.template
            assert b"127.0.0.1" not in said.body
        assert not [one for one in (*a.requests, *b.requests) if one.target.endswith("/")]


# ---------------------------------------------------------------- H26: preflight

PREFLIGHT = (
    "Origin: https://app.example",
    "Access-Control-Request-Method: POST",
    "Access-Control-Request-Headers: authorization, content-type, x-stainless-os",
)


def cors_of(said: Said) -> list[str]:
    return [name for name, _ in said.headers if name.lower().startswith("access-control")]


@pytest.mark.parametrize("target", ["/v1/chat/completions", "/v1/models", "/generate", "/v1/messages"])
async def test_h26_preflight_is_refused_and_opens_nothing_where_cors_is_not_configured(target: str) -> None:
    async with staged() as stage, RawClient(stage.app.port) as client:
        await client.send(request(target, b"", *PREFLIGHT, method="OPTIONS"))
        said = await client.answer()
        assert (said.status, cors_of(said)) == (405, [])
        assert (said.header("allow") or "").split(", ")
        await client.send(request(body=chat()))
        assert (await client.answer()).status == 200
        assert [one.method for one in stage.a.requests] == ["POST"]


@pytest.mark.parametrize("target", ["/v1/chat/completions", "/v1/models"])
async def test_h26_engines_401_is_seen_by_a_browser_as_the_engine_wrote_it(target: str) -> None:
    """Its CORS headers are the engine's business where ours are off."""

    async def denies(exchange: Exchange) -> None:
        lines = ("access-control-allow-origin: https://app.example", "www-authenticate: Bearer")
        await exchange.answer(b'{"error":{}}', "401 Unauthorized", *lines)

    async with staged(denies, denies) as stage:
        post = target != "/v1/models"
        lines = ("Origin: https://app.example",)
        said = await ask(
            stage.app.port, request(target, chat() if post else b"", *lines, method="POST" if post else "GET")
        )
        assert (said.status, said.header("www-authenticate")) == (401, "Bearer")
        assert said.header("access-control-allow-origin") == "https://app.example"


# ---------------------------------------------------------------- H26: HEAD

# Said anew for each answer, or of this connection alone.
VARYING = {"date", "x-request-id", "connection"}


async def like_fastapi(exchange: Exchange) -> None:
    """A route that knows GET has no HEAD there."""
    if exchange.request.method == "HEAD":
        await exchange.head("405 Method Not Allowed", "allow: GET", "content-length: 31")
    elif exchange.request.header("x-framing") == "chunked":
        await exchange.stream_head("application/json")
        await exchange.chunk(b'{"object":"list","data":[]}')
        await exchange.end()
    else:
        await exchange.answer(b'{"object":"list","data":[]}', "200 OK", "x-engine: yes")


@pytest.mark.parametrize(
    "target", ["/v1/models", "/v1/models/org%2Fname", "/model_info", *sorted(LIVENESS_PATHS | READINESS_PATHS)]
)
@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_h26_head_has_the_headers_of_get_and_no_body(target: str, version: str, framing: str) -> None:
    async with staged(like_fastapi, like_fastapi) as stage:
        line = f"x-framing: {framing}"
        whole = await ask(stage.app.port, request(target, b"", line, method="GET", version=version))
        async with RawClient(stage.app.port) as client:
            await client.send(request(target, b"", line, "connection: close", method="HEAD", version=version))
            head = await client.answer(bodiless=True)
            assert await client.rest() == b""
        assert (head.status, whole.status, bool(whole.body)) == (200, 200, True)
        assert lasting(head) == lasting(whole)
        assert head.header("content-length") == str(len(whole.body))


def lasting(said: Said) -> list[tuple[str, str]]:
    return sorted((name.lower(), value) for name, value in said.headers if name.lower() not in VARYING)


async def test_h26_head_of_ready_says_503_like_get_when_no_engine_lives() -> None:
    async with staged() as stage:
        for role in stage.app.desk.backends:
            stage.app.drain_backend(role.role, draining=True)
        for method in ("GET", "HEAD"):
            said = await ask(stage.app.port, request("/ready", method=method), bodiless=method == "HEAD")
            assert said.status == 503


async def test_h26_head_of_what_only_takes_posts_is_405_without_a_body() -> None:
    async with staged() as stage, RawClient(stage.app.port) as client:
        await client.send(request("/v1/chat/completions", b"", "connection: close", method="HEAD"))
        said = await client.answer(bodiless=True)
        assert (said.status, said.header("allow"), await client.rest()) == (405, "POST", b"")
        assert not stage.a.requests


# ---------------------------------------------------------------- H26: upgrades

WEBSOCKET = (
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Protocol: realtime, openai-insecure-api-key.k",
)


@pytest.mark.parametrize("engine", EngineKind)
@pytest.mark.parametrize("target", [*sorted(UPGRADE_PATHS), "/v1/realtime?model=m", "/v1/models", "/v1/unheard-of"])
@pytest.mark.parametrize("spelling", ["Upgrade", "keep-alive, Upgrade", "upgrade"])
async def test_h26_websocket_is_refused_at_once_with_501_and_is_never_a_plain_get(
    engine: EngineKind, target: str, spelling: str
) -> None:
    async with proxied(engine) as (port, a, b), RawClient(port) as client:
        a.requests.clear()
        b.requests.clear()
        await client.send(request(target, b"", f"Connection: {spelling}", *WEBSOCKET[1:], method="GET"))
        await client.send(b"\x81\x85\x00\x00\x00\x00hello")
        said = await client.answer()
        error: Any = said.json["error"]
        assert (said.status, error["code"]) == (501, "upgrade_not_supported")
        assert set(error) == {"message", "type", "param", "code"}
        assert said.header("upgrade") is None
        assert await client.rest() == b""
        await turns(20)
        assert not [one for one in (*a.requests, *b.requests) if one.target == target]


@pytest.mark.parametrize("protocol", ["websocket", "foo/1", "h2c, websocket", "TLS/1.0"])
async def test_h26_every_upgrade_that_the_request_needs_is_refused(protocol: str) -> None:
    async with staged() as stage:
        lines = ("Connection: Upgrade", f"Upgrade: {protocol}")
        said = await ask(stage.app.port, request("/v1/chat/completions", chat(), *lines))
        assert (said.status, said.header("connection"), stage.a.requests) == (501, "close", [])


async def test_h26_realtime_without_an_upgrade_is_refused_too() -> None:
    async with staged() as stage:
        said = await ask(stage.app.port, request("/v1/realtime?model=m", method="GET"))
        assert (said.status, stage.a.requests, stage.b.requests) == (501, [], [])


# ---------------------------------------------------------------- H26: methods


@pytest.mark.parametrize("method", ["FOO", "PROPFIND", "TRACE", "PATCH", "DELETE", "QUERY", "post", "PRI", "M-SEARCH"])
@pytest.mark.parametrize("target", ["/v1/chat/completions", "/v1/models", "/health", "/generate"])
async def test_h26_unknown_method_is_refused_and_reaches_no_engine(method: str, target: str) -> None:
    async with staged(either, either) as stage:
        said = await ask(stage.app.port, request(target, chat(), method=method))
        error: Any = said.json["error"]
        assert said.status in (400, 404, 405)
        assert set(error) == {"message", "type", "param", "code"}
        assert not stage.a.requests
        assert not stage.b.requests


@pytest.mark.parametrize("target", ["/v1/chat/completions", "/v1/models", "/generate", "/v1/messages"])
async def test_h26_preflight_of_a_listed_page_needs_no_key_and_echoes_its_headers(target: str, tmp_path: Path) -> None:
    write_keys(tmp_path / "keys", ["page"])
    listen = {"cors_origins": ["https://app.example"], "api_keys_file": str(tmp_path / "keys")}
    async with staged(listen=listen) as stage:
        said = await ask(stage.app.port, request(target, b"", *PREFLIGHT, method="OPTIONS"))
        assert (said.status, said.header("access-control-allow-origin")) == (204, "https://app.example")
        assert said.header("access-control-allow-headers") == "authorization, content-type, x-stainless-os"
        refused = await ask(stage.app.port, request(target, chat(), PREFLIGHT[0]))
        assert (refused.status, refused.header("access-control-allow-origin")) == (401, "https://app.example")
        assert stage.a.requests == stage.b.requests == []

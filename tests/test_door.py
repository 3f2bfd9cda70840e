"""The clients' port lets in what is listed, answers for itself, and refuses the rest in the right shape."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from fakes.engine import Exchange, FakeEngine
from fakes.proxy import running, settings
from fakes.raw import RawClient, Said, ask, chat, request
from fakes.until import turns, until
from prometheus_client.parser import text_string_to_metric_families

from proxy.app import App, Phase
from proxy.model import Role
from proxy.protocol.allowlist import LIVENESS_PATHS, READINESS_PATHS, EngineKind

HOST = b"host: proxy.example\r\n"


@contextlib.asynccontextmanager
async def opened(**sections: Any) -> AsyncIterator[tuple[App, FakeEngine, FakeEngine]]:
    async with (
        FakeEngine() as a,
        FakeEngine(role="baseline") as b,
        running(settings(a.url, b.url, **sections)) as app,
    ):
        yield app, a, b


@pytest.fixture
async def app() -> AsyncIterator[App]:
    async with opened() as (made, a, b):
        yield made
        assert not a.requests, "an engine saw what should have been answered at the door"
        assert not b.requests, "an engine saw what should have been answered at the door"


async def get(app: App, path: str, method: str = "GET", *lines: str) -> Said:
    return await ask(app.port, request(path, b"", *lines, method=method), bodiless=method == "HEAD")


def refusals(app: App) -> dict[str, float]:
    """How many requests the proxy turned away, by code."""
    return by_code(app, "crossover_refusals_total")


def failures(app: App) -> dict[str, float]:
    """How many requests an engine or the proxy failed, by code."""
    return by_code(app, "crossover_failures_total")


def by_code(app: App, name: str) -> dict[str, float]:
    families = text_string_to_metric_families(app.metrics.exposition().decode())
    samples = [sample for family in families for sample in family.samples]
    return {one.labels["code"]: one.value for one in samples if one.name == name}


def require_refused(said: Said, status: int, code: str) -> None:
    """An error of ours in the OpenAI shape, with an id to ask about."""
    assert said.status == status
    assert said.header("content-type") == "application/json"
    error = said.json["error"]
    assert isinstance(error, dict)
    assert error["code"] == code
    assert error["message"]
    assert set(error) == {"message", "type", "param", "code"}


# ---------------------------------------------------------------- the proxy's own answers


@pytest.mark.parametrize("path", sorted(LIVENESS_PATHS))
@pytest.mark.parametrize("phase", list(Phase))
async def test_it_is_alive_in_every_phase(app: App, path: str, phase: Phase) -> None:
    app.phase = phase
    said = await get(app, path)
    assert (said.status, said.json) == (200, {"status": "alive"})


@pytest.mark.parametrize("path", sorted(READINESS_PATHS))
async def test_it_is_ready_while_it_serves_and_an_engine_lives(app: App, path: str) -> None:
    said = await get(app, path)
    assert (said.status, said.json) == (200, {"status": "ready", "reason": "ok"})
    assert (await get(app, f"{path}?probe=1")).status == 200


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.SERVING])
async def test_it_is_not_ready_in_any_other_phase_and_says_which(app: App, phase: Phase) -> None:
    app.phase = phase
    said = await get(app, "/ready")
    assert (said.status, said.json) == (503, {"status": "not_ready", "reason": phase.value})


async def test_it_is_not_ready_when_no_engine_may_be_used(app: App) -> None:
    for role in Role:
        app.drain_backend(role, draining=True)
    said = await get(app, "/health")
    assert (said.status, said.json) == (503, {"status": "not_ready", "reason": "no backend is eligible"})


@pytest.mark.parametrize("path", ["/healthz", "/health", "/ready"])
async def test_head_has_the_head_of_get_and_no_body(app: App, path: str) -> None:
    async with RawClient(app.port) as client:
        await client.send(request(path, method="HEAD") + request(path, method="GET"))
        head = await client.answer(bodiless=True)
        whole = await client.answer()
    assert head.status == whole.status == 200
    assert head.header("content-length") == str(len(whole.body))


async def test_health_is_answered_while_the_door_is_closed(app: App) -> None:
    app.door.closed = True
    assert (await get(app, "/healthz")).status == 200


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nothing", 404, "unknown_route"),
        ("POST", "/v1/chat/completions/", 404, "unknown_route"),
        ("GET", "//evil/v1/models", 404, "unknown_route"),
        ("GET", "/v1/../admin", 404, "unknown_route"),
        ("GET", "/v1/%2e%2e/flush_cache", 404, "unknown_route"),
        ("GET", "http://evil.example/v1/models", 400, "invalid_request"),
        ("GET", "/v1/models?a b", 400, "invalid_request"),
        ("POST", "/flush_cache", 403, "route_refused"),
        ("GET", "/flush_cache", 403, "route_refused"),
        ("POST", "/update_weights_from_disk", 403, "route_refused"),
        ("GET", "/v1/realtime", 501, "upgrade_not_supported"),
        ("GET", "/v1/chat/completions", 405, "method_not_allowed"),
        ("DELETE", "/v1/models", 405, "method_not_allowed"),
        ("OPTIONS", "/v1/chat/completions", 405, "method_not_allowed"),
        ("POST", "/health", 405, "method_not_allowed"),
        ("DELETE", "/livez?a=1", 405, "method_not_allowed"),
        ("OPTIONS", "/nothing", 404, "unknown_route"),
    ],
)
async def test_what_is_not_listed_is_refused_in_the_openai_shape(
    app: App, method: str, path: str, status: int, code: str
) -> None:
    said = await get(app, path, method)
    if path == "/v1/models?a b":  # a space ends the request target, and then this is no HTTP
        assert said.status == 400
        return
    require_refused(said, status, code)
    assert said.header("x-request-id")
    assert refusals(app) == {code: 1}


@pytest.mark.parametrize(
    ("path", "allow"), [("/v1/chat/completions", "POST"), ("/v1/models", "GET, HEAD"), ("/health", "GET, HEAD")]
)
async def test_a_method_that_is_not_allowed_is_told_which_are(app: App, path: str, allow: str) -> None:
    assert (await get(app, path, "OPTIONS", "origin: https://page.example")).header("allow") == allow


async def test_a_refusal_keeps_the_id_that_came(app: App) -> None:
    assert (await get(app, "/nothing", "GET", "x-request-id: mine")).header("x-request-id") == "mine"


async def test_an_upgrade_is_refused_and_the_connection_closed(app: App) -> None:
    async with RawClient(app.port) as client:
        await client.send(request("/v1/chat/completions", b"{}", "connection: Upgrade", "upgrade: websocket"))
        said = await client.answer()
        require_refused(said, 501, "upgrade_not_supported")
        assert said.header("connection") == "close"
        assert await client.rest() == b""


async def test_an_upgrade_header_that_connection_does_not_name_is_no_upgrade() -> None:
    async with opened() as (app, a, _):
        said = await ask(app.port, request("/v1/chat/completions", chat(), "upgrade: h2c"))
        assert said.status == 200
        assert a.requests[0].header("upgrade") is None


async def test_a_refused_request_with_a_body_leaves_the_connection_usable(app: App) -> None:
    async with RawClient(app.port) as client:
        await client.send(request("/nothing", b"x" * 1000) + request("/healthz", method="GET"))
        assert (await client.answer()).status == 404
        assert (await client.answer()).status == 200


async def test_a_closed_door_says_try_again_and_ends_the_connection(app: App) -> None:
    app.door.closed = True
    async with RawClient(app.port) as client:
        await client.send(request(body=chat()))
        said = await client.answer()
        require_refused(said, 503, "shutting_down")
        assert said.header("retry-after") == "1"
        assert await client.rest() == b""


async def test_a_closed_door_speaks_the_dialect_of_the_route(app: App) -> None:
    app.door.closed = True
    said = await ask(app.port, request("/v1/messages", b"{}"))
    assert (said.status, said.json["type"]) == (503, "error")


@pytest.mark.parametrize(
    ("path", "shape"), [("/v1/messages", {"type", "error"}), ("/api/chat", {"error"}), ("/livez", {"error"})]
)
async def test_a_method_that_is_not_allowed_is_refused_in_the_dialect_of_the_route(
    app: App, path: str, shape: set[str]
) -> None:
    said = await ask(app.port, request(path, b"", method="DELETE"))
    assert (said.status, set(said.json)) == (405, shape)
    assert isinstance(said.json["error"], str) is (path == "/api/chat")


@pytest.mark.parametrize(
    ("path", "let_in"), [("/v1/chat/completions", True), ("/generate", False), ("/pooling", False)]
)
async def test_with_two_kinds_of_engines_only_what_both_have_is_let_in(path: str, let_in: bool) -> None:
    async with opened() as (app, _, _b):
        app.door.engines = tuple(EngineKind)
        said = await ask(app.port, request(path, chat()))
    assert (said.status == 200) is let_in
    assert let_in or said.status == 404


async def test_an_error_on_the_messages_route_has_the_shape_of_that_route() -> None:
    async with opened(listen={"max_body_bytes": 1024}) as (app, _, _b):
        said = await ask(app.port, request("/v1/messages", b"x" * 2000))
    assert said.status == 413
    assert said.json["type"] == "error"
    assert said.json["error"]["type"] == "request_too_large"  # type: ignore[index]


# ---------------------------------------------------------------- what is no HTTP

MALFORMED = {
    "no HTTP": b"hello\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n",
    "unknown method": b"FETCH / HTTP/1.1\r\n" + HOST + b"\r\n",
    "HTTP/3.7": b"GET /healthz HTTP/3.7\r\n" + HOST + b"\r\n",
    "no colon": b"GET /healthz HTTP/1.1\r\n" + HOST + b"no colon here\r\n\r\n",
    "space before colon": b"GET /healthz HTTP/1.1\r\n" + HOST + b"x-a : 1\r\n\r\n",
    "folded header": b"GET /healthz HTTP/1.1\r\n" + HOST + b"x-a: 1\r\n two\r\n\r\n",
    "NUL in a value": b"GET /healthz HTTP/1.1\r\n" + HOST + b"x-a: a\x00b\r\n\r\n",
    "length and chunks": b"POST /v1/chat/completions HTTP/1.1\r\n"
    + HOST
    + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": b"POST /v1/chat/completions HTTP/1.1\r\n"
    + HOST
    + b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}",
    "negative length": b"POST /v1/chat/completions HTTP/1.1\r\n" + HOST + b"content-length: -1\r\n\r\n",
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED.keys())
async def test_what_is_no_http_gets_400_and_nothing_after_it_is_served(app: App, data: bytes) -> None:
    async with RawClient(app.port) as client:
        await client.send(data + request("/healthz", method="GET"))
        said = await client.answer()
        require_refused(said, 400, "invalid_request")
        assert await client.rest() == b""
    assert refusals(app) == {"invalid_request": 1}


async def test_a_body_that_breaks_its_framing_is_400_to_a_request_that_has_come(app: App) -> None:
    head = b"POST /v1/chat/completions HTTP/1.1\r\n" + HOST + b"transfer-encoding: chunked\r\n\r\n"
    rest = b"1zz\r\n{}\r\n" + request("/healthz", method="GET")
    for pieces in ((head + rest,), (head, rest), (head + rest[:1], rest[1:])):
        async with RawClient(app.port) as client:
            for piece in pieces:
                await client.send(piece)
                await turns(20)
            require_refused(await client.answer(), 400, "invalid_request")
            assert await client.rest() == b""
    assert (failures(app), refusals(app)) == ({}, {"invalid_request": 3})


async def test_a_malformed_request_is_no_error_of_ours_in_the_log(capfdbinary: Any) -> None:
    async with opened(log={"level": "debug"}) as (app, _, _b):
        await ask(app.port, MALFORMED["no colon"])
    lines = [orjson.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    told = [line for line in lines if line["event"].startswith("request_")]
    assert [(line["event"], line["level"], line["status"]) for line in told] == [("request_refused", "info", 400)]


async def test_head_and_body_that_never_come_hold_nothing_up(app: App) -> None:
    async with RawClient(app.port) as silent, RawClient(app.port) as half:
        await half.send(b"GET /healthz HT")
        assert (await get(app, "/healthz")).status == 200
        silent.leave(reset=True)


# ---------------------------------------------------------------- what we failed to catch


WORD = {"choices": [{"index": 0, "delta": {"content": "one"}}]}


async def stuck(exchange: Exchange) -> None:
    await exchange.stream_head()
    await exchange.event(WORD)
    await exchange.gone()


async def test_a_client_that_leaves_is_no_failure_of_ours(capfdbinary: Any) -> None:
    async with (
        FakeEngine(script=stuck) as a,
        FakeEngine(role="baseline") as b,
        running(settings(a.url, b.url, log={"level": "debug"})) as app,
    ):
        async with RawClient(app.port) as client:
            await client.send(request(body=chat(stream=True)))
            await client.head()
            client.leave(reset=True)
            await until(lambda: not app.relay.trips)
        assert refusals(app) == {}
    assert b"request_failed" not in capfdbinary.readouterr().out


async def test_a_write_to_a_client_that_left_is_no_failure_of_ours(capfdbinary: Any) -> None:
    async def fail(*_: object) -> None:
        raise ConnectionResetError("the client left")

    async with opened(log={"level": "debug"}) as (app, _, _b):
        app.relay.carry = fail  # type: ignore[method-assign,assignment]
        async with RawClient(app.port) as client:
            await client.send(request(body=chat()))
            assert await client.rest() == b""
        assert refusals(app) == {}
    assert b"request_failed" not in capfdbinary.readouterr().out


@pytest.mark.parametrize("defect", ["feed", "rest"])
async def test_a_defect_after_the_head_is_logged_and_never_answered_over_it(capfdbinary: Any, defect: str) -> None:
    """Nor told as the engine's: it meets the request while its connection hands a piece, or the end, over."""
    goes_on = asyncio.Event()

    async def engine(exchange: Exchange) -> None:
        await exchange.stream_head()
        await exchange.event(WORD)
        await goes_on.wait()
        await exchange.event(WORD)
        await exchange.chunk(b"data: [DONE]\n\n")
        await exchange.end()

    async with (
        FakeEngine(script=engine) as a,
        FakeEngine(role="baseline") as b,
        running(settings(a.url, b.url, log={"level": "debug"})) as app,
    ):
        async with RawClient(app.port) as client:
            await client.send(request(body=chat(stream=True)))
            await client.head()
            await client.chunk()
            passage = next(iter(app.relay.trips))._passage
            assert passage is not None
            passage._hold = Broken(defect)  # type: ignore[assignment]
            goes_on.set()
            rest = await client.rest()
        assert not rest.endswith(b"0\r\n\r\n")
        assert b"HTTP/1.1" not in rest
        assert b"error" not in rest
        await until(lambda: not app.relay.trips)
        assert (failures(app), refusals(app)) == ({"internal_error": 1}, {})
        assert app.desk.snapshot().in_flight == 0
    lines = [orjson.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    assert [(line["event"], line["error"]) for line in lines if "error" in line] == [("request_failed", "RuntimeError")]


class Broken:
    """A hold with a defect in one of its methods."""

    overflowed = False

    def __init__(self, where: str) -> None:
        self.where = where

    def feed(self, data: bytes) -> bytes:
        if self.where == "feed":
            raise RuntimeError("words")
        return data

    def rest(self) -> bytes:
        raise RuntimeError("words")

"""Heads, errors of our own, and an end that does not look like one."""

import asyncio

import orjson
import pytest
from aiohttp import web
from fakes.ears import listen
from fakes.raw import Said, ask, request
from fakes.serving import serving
from fakes.until import until

from proxy.errors import (
    BackendBroken,
    BackendBusy,
    BodyTooLarge,
    CrossoverError,
    KeyRefused,
    MethodNotAllowed,
    QueueFull,
    QueueTimeout,
    ShuttingDown,
    UnknownRoute,
)
from proxy.model import Because, Decision, Dialect, Policy, Reason, Regime, Role
from proxy.wire.downstream import because_header, error_response, kept_response, open_response, stamps_of
from proxy.wire.kept import Kept

BECAUSE = Because(Policy.OVERFLOW, 3, 1, 2.5, 5, 9, Role.SPECULATIVE)


async def told(response: web.StreamResponse, method: str = "GET") -> Said:
    async def handler(_: web.BaseRequest) -> web.StreamResponse:
        return response

    async with serving(handler) as port:
        return await ask(port, request("/", method=method), bodiless=method == "HEAD")


async def cut_after(data: bytes, *headers: tuple[str, str]) -> Said:
    async def handler(came: web.BaseRequest) -> web.StreamResponse:
        response = open_response(200, headers, [])
        await response.prepare(came)
        await response.write(data)
        response.cut(told=True)
        return response

    async with serving(handler) as port:
        return await ask(port, request("/", method="GET"))


# ---------------------------------------------------------------- cut


async def test_cut_answer_in_chunks_does_not_look_whole() -> None:
    assert not (await cut_after(b"half")).whole


async def test_cut_answer_with_a_length_does_not_look_whole() -> None:
    assert not (await cut_after(b"half", ("content-length", "9"))).whole


async def test_what_was_written_before_the_cut_arrives() -> None:
    assert (await cut_after(b"x" * 300_000)).body == b"x" * 300_000


@pytest.mark.parametrize("told", [False, True])
async def test_cut_answer_that_only_the_closing_ends_is_reset_unless_its_client_was_told(told: bool) -> None:
    async def handler(came: web.BaseRequest) -> web.StreamResponse:
        response = open_response(200, [("content-type", "text/event-stream")], [])
        response.force_close()
        await response.prepare(came)
        await response.write(b"half")
        response.cut(told=told)
        return response

    async with serving(handler) as port:
        ear, _ = await listen(port, "/", b"", "1.0")
        await until(lambda: ear.closed, what="the end of the connection")
        assert (ear.whole.endswith(b"half"), ear.reset) == (True, not told)


async def test_answer_that_is_not_cut_looks_whole() -> None:
    async def handler(came: web.BaseRequest) -> web.StreamResponse:
        response = open_response(200, [], [])
        await response.prepare(came)
        await response.write(b"all")
        return response

    async with serving(handler) as port:
        assert (await ask(port, request("/", method="GET"))).whole


# ---------------------------------------------------------------- heads


async def test_order_and_repetition_of_headers_are_the_backends() -> None:
    headers = [("X-B", "1"), ("x-a", "2"), ("X-B", "3")]
    assert [pair for pair in open_response(200, headers, []).headers.items() if pair in headers] == headers


async def test_stamp_takes_the_place_of_the_backends_header() -> None:
    response = open_response(200, [("X-Request-ID", "theirs")], [("x-request-id", "ours")])
    assert response.headers.getall("x-request-id") == ["ours"]


@pytest.mark.parametrize(
    ("content_type", "told"),
    [("Text/Event-Stream; charset=utf-8", True), ("application/x-ndjson", True), ("application/json", False)],
)
async def test_stream_tells_proxies_in_front_not_to_buffer_it(content_type: str, told: bool) -> None:
    response = open_response(200, [("Content-Type", content_type), ("x-accel-buffering", "yes")], [])
    assert response.headers.getall("X-Accel-Buffering") == (["no"] if told else ["yes"])


async def test_server_is_named_where_the_backend_names_none() -> None:
    assert open_response(200, [], []).headers["server"] == "crossover"


def test_stamps_tell_the_decision() -> None:
    decision = Decision(Role.BASELINE, Reason.OVERFLOW, Regime(), BECAUSE)
    assert dict(stamps_of("id-1", decision)) == {
        "x-request-id": "id-1",
        "x-crossover-backend": "baseline",
        "x-crossover-reason": "overflow",
        "x-crossover-in-flight": "speculative=3, baseline=1",
        "x-crossover-because": because_header(BECAUSE),
    }


def test_stamps_tell_no_backend_when_there_was_no_room() -> None:
    decision = Decision(None, Reason.FULL, Regime(), BECAUSE)
    assert stamps_of("id-1", decision) == [("x-request-id", "id-1")]


def test_numbers_of_a_decision_are_one_header() -> None:
    expected = "policy=overflow, regime=speculative, smoothed=2.50, enter_at=5, leave_at=9"
    assert because_header(BECAUSE) == expected


def test_failures_that_weighed_as_load_are_told_with_the_numbers() -> None:
    assert because_header(BECAUSE._replace(recent_failures=3)).endswith(", leave_at=9, recent_failures=3")


# ---------------------------------------------------------------- kept answers


async def test_kept_answer_is_told_as_it_came() -> None:
    kept = Kept(503, [("Content-Type", "text/html"), ("Content-Length", "2"), ("retry-after", "3")], b"no")
    said = await told(kept_response(kept, []))
    assert (said.status, said.body, said.header("retry-after"), said.header("content-type")) == (
        503,
        b"no",
        "3",
        "text/html",
    )


async def test_kept_answer_to_head_keeps_its_length() -> None:
    said = await told(kept_response(Kept(200, [("content-length", "42")], b""), [], bodiless=True), "HEAD")
    assert (said.header("content-length"), said.header("transfer-encoding")) == ("42", None)


async def test_kept_answer_in_chunks_is_told_whole() -> None:
    said = await told(kept_response(Kept(200, [("transfer-encoding", "chunked")], b"body"), []))
    assert (said.body, said.whole) == (b"body", True)


# ---------------------------------------------------------------- errors of our own


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (UnknownRoute("m"), 404),
        (BodyTooLarge("m"), 413),
        (QueueFull("m"), 429),
        (QueueTimeout("m"), 503),
        (BackendBusy("m"), 503),
        (BackendBroken("m"), 502),
        (CrossoverError("m"), 500),
    ],
)
async def test_error_is_json_with_its_own_status(error: CrossoverError, status: int) -> None:
    said = await told(error_response(error, Dialect.CHAT))
    assert (said.status, said.header("content-type"), list(orjson.loads(said.body))) == (
        status,
        "application/json",
        ["error"],
    )


@pytest.mark.parametrize(("seconds", "header"), [(None, None), (0.2, "1"), (7.4, "7")])
def test_retry_after_is_whole_seconds(seconds: float | None, header: str | None) -> None:
    error = BackendBroken("m", retry_after_s=seconds)
    assert error_response(error, Dialect.CHAT).headers.get("retry-after") == header


def test_how_a_key_is_sent_is_told_where_one_is_asked_for() -> None:
    told = [error_response(kind("m"), Dialect.CHAT).headers for kind in (KeyRefused, UnknownRoute)]
    assert [each.get("www-authenticate") for each in told] == ["Bearer", None]


def test_allowed_methods_are_told() -> None:
    error = MethodNotAllowed("m", allow=frozenset({"PUT", "POST"}))
    assert error_response(error, Dialect.CHAT).headers["allow"] == "POST, PUT"


async def test_connection_closes_when_asked() -> None:
    said = await told(error_response(ShuttingDown("m"), Dialect.CHAT, close=True))
    assert said.header("connection") == "close"


def test_error_has_the_anthropic_shape_on_messages() -> None:
    body = error_response(UnknownRoute("m"), Dialect.MESSAGES).body
    assert isinstance(body, bytes) and orjson.loads(body)["type"] == "error"


async def test_error_does_not_wait_for_anything() -> None:
    async with asyncio.timeout(1):
        assert (await told(error_response(UnknownRoute("m"), Dialect.CHAT))).whole

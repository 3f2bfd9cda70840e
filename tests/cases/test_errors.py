"""H19: an engine's error reaches the client as the engine said it; ours have our shape and never another's fault."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import openai
import orjson
import pytest
from fakes.dialects import SAMPLES, Sample
from fakes.engine import Exchange, stream
from fakes.leaping import leaping_where
from fakes.proxy import url
from fakes.raw import RawClient, Said, ask, chat, request
from fakes.stage import Stage, staged
from fakes.until import until
from openai import AsyncOpenAI

from proxy.model import Dialect, Outcome

Script = Callable[[Exchange], Awaitable[None]]

PHRASES = {
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    409: "Conflict",
    413: "Too Large",
    422: "Unprocessable Entity",
    429: "Too Many Requests",
    500: "Internal Server Error",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}
BODY = b'{"object":"error", "message":"told \xc3\xa9","type":"BadRequestError","param":null,"code":%d}'
CLASSES: dict[int, type[openai.APIStatusError]] = {
    400: openai.BadRequestError,
    401: openai.AuthenticationError,
    403: openai.PermissionDeniedError,
    404: openai.NotFoundError,
    409: openai.ConflictError,
    422: openai.UnprocessableEntityError,
    429: openai.RateLimitError,
    500: openai.InternalServerError,
    502: openai.InternalServerError,
    503: openai.InternalServerError,
}
# Every request reaches an engine here: no circuit opens, and retries are never spent.
FREE: dict[str, Any] = {"circuit": {"max_failures": 1000}, "retries": {"max_ratio": 1.0, "reserve": 10_000}}
# For engines that say nothing, on a loop that leaps: below what a client waits.
QUICK = {"connect_s": 2.0, "first_byte_s": 5.0}
ON_ITS_LOOP = leaping_where(lambda way, **_: way == "silent")


def plainly(sample: Sample) -> bytes:
    return sample.body.replace(b'"stream":true', b'"stream":false')


async def asked(stage: Stage, sample: Sample, *lines: str, streams: bool = True, version: str = "1.1") -> Said:
    body = sample.body if streams else plainly(sample)
    return await ask(stage.app.port, request(sample.target, body, *lines, version=version))


def by_dialect(sample: Sample) -> str:
    return sample.dialect.value


ALL_DIALECTS = pytest.mark.parametrize("sample", SAMPLES, ids=by_dialect)


# ---------------------------------------------------------------- what the engines say passes


async def refuses(exchange: Exchange) -> None:
    """Answers with the status and the kind of body that the request names."""
    status = int(exchange.request.header("x-status") or 0)
    kind, body = KINDS[exchange.request.header("x-kind") or ""]
    body = body % status if b"%d" in body else body
    lines = [f"content-type: {kind}", "x-engine: yes", "retry-after: 7", "retry-after-ms: 7000"]
    if exchange.request.header("x-framing") == "chunked":
        await exchange.head(f"{status} {PHRASES[status]}", *lines, "transfer-encoding: chunked")
        for start in range(0, len(body), 50_000):
            await exchange.chunk(body[start : start + 50_000])
        await exchange.end()
    else:
        await exchange.head(f"{status} {PHRASES[status]}", *lines, f"content-length: {len(body)}")
        await exchange.send(body)


KINDS = {
    "json": ("application/json", BODY),
    "newline": ("application/json; charset=utf-8", BODY + b"\n"),
    "html": ("text/html", b"<html><body>502 Bad Gateway</body></html>\r\n"),
    "text": ("text/plain", b"Internal Server Error"),
    "null": ("application/json", b"null"),
    "empty": ("application/json", b""),
    "large": ("application/json", b'{"detail":"' + b"x" * 200_000 + b'"}'),
}


ERRORS = (
    *((status, kind, "length") for status in PHRASES for kind in ("json", "newline")),
    *((status, kind, "chunked") for status in (400, 502, 503) for kind in KINDS),
)


@ALL_DIALECTS
@pytest.mark.parametrize("streams", [True, False], ids=["stream", "plain"])
async def test_h19_status_type_and_body_of_an_engines_error_pass_unchanged(sample: Sample, streams: bool) -> None:
    async with staged(refuses, refuses, **FREE) as stage:
        for status, kind, framing in ERRORS:
            how = (f"x-status: {status}", f"x-kind: {kind}", f"x-framing: {framing}")
            content_type, body = KINDS[kind]
            said = await asked(stage, sample, *how, streams=streams)
            expected = body % status if b"%d" in body else body
            assert (said.status, said.body, said.whole) == (status, expected, True), how
            assert said.header("content-type") == content_type
            assert (said.header("x-engine"), said.header("retry-after")) == ("yes", "7")
            assert said.header("retry-after-ms") == "7000"


@pytest.mark.parametrize("status", [400, 429, 500])
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_h19_engines_error_passes_over_every_kind_of_connection(status: int, host: str, version: str) -> None:
    async with staged(refuses, refuses, host=host, **FREE) as stage:
        for framing in ("length", "chunked"):
            how = (f"x-status: {status}", "x-kind: newline", f"x-framing: {framing}")
            said = await asked(stage, SAMPLES[0], *how, version=version)
            assert (said.status, said.body, said.whole) == (status, BODY % status + b"\n", True)


async def refuses_connections(exchange: Exchange) -> None:
    exchange.reset()


@pytest.mark.parametrize("status", [500, 503])
@pytest.mark.parametrize("role", ["speculative", "baseline"])
@pytest.mark.parametrize("streams", [True, False], ids=["stream", "plain"])
async def test_h19_one_engines_own_error_passes_when_the_other_has_none_to_say(
    status: int, role: str, streams: bool
) -> None:
    scripts = (refuses, refuses_connections) if role == "speculative" else (refuses_connections, refuses)
    async with staged(*scripts, **FREE) as stage:
        said = await asked(stage, SAMPLES[0], f"x-status: {status}", "x-kind: json", streams=streams)
        assert (said.status, said.body, said.header("content-type")) == (status, BODY % status, "application/json")
        assert [said.header(name) for name in ("x-engine", "retry-after", "retry-after-ms")] == ["yes", "7", "7000"]


@ALL_DIALECTS
async def test_h19_packed_error_passes_packed(sample: Sample) -> None:
    async def odd(exchange: Exchange) -> None:
        await exchange.answer(b"\x1f\x8b\x00", "400 Bad Request", "content-encoding: gzip")

    async with staged(odd, odd, **FREE) as stage:
        said = await asked(stage, sample)
        assert (said.status, said.body, said.header("content-encoding")) == (400, b"\x1f\x8b\x00", "gzip")


@pytest.mark.parametrize("status", [401, 404, 422, 429, 500, 503])
async def test_h19_engines_error_to_a_question_passes(status: int) -> None:
    async with staged(refuses, refuses, health={"interval_s": 300}) as stage:
        how = (f"x-status: {status}", "x-kind: newline")
        for data in (
            request("/v1/models", b"", *how, method="GET"),
            request("/tokenize", b"{}", *how),
            request("/v1/messages/count_tokens", b"{}", *how),
        ):
            said = await ask(stage.app.port, data)
            assert (said.status, said.body) == (status, BODY % status + b"\n")
            assert said.header("content-type") == "application/json; charset=utf-8"


async def test_h19_null_from_an_engine_with_200_is_the_engines_own_answer() -> None:
    async def null(exchange: Exchange) -> None:
        await exchange.answer(b"null")

    async with staged(null) as stage:
        said = await stage.ask()
        assert (said.status, said.body, said.header("x-crossover-backend")) == (200, b"null", "speculative")


# ---------------------------------------------------------------- an error inside a 200


def complaint(sample: Sample, status: int) -> bytes:
    """The first event of a stream that the engine refuses, in its dialect."""
    if sample.dialect is Dialect.OLLAMA:
        return b'{"error":"no","code":%d}\n' % status
    if sample.dialect is Dialect.MESSAGES:
        kind = {400: "invalid_request_error", 500: "api_error"}[status]
        value = orjson.dumps({"type": "error", "error": {"type": kind, "message": "no"}})
        return b"event: error\ndata: " + value + b"\n\n"
    if sample.dialect is Dialect.RESPONSES:
        value = orjson.dumps({"type": "error", "code": str(status), "message": "no", "sequence_number": 0})
        return b"event: error\ndata: " + value + b"\n\n"
    return b'data: {"error":{"message":"no","type":"X","param":null,"code":%d}}\n\n' % status


def complains(sample: Sample, status: int, *before: bytes) -> Script:
    async def answer(exchange: Exchange) -> None:
        await exchange.stream_head(sample.content_type)
        for event in (*before, complaint(sample, status)):
            await exchange.chunk(event)
        await exchange.end()

    return answer


def metric(stage: Stage, name: str) -> float:
    """The sum of a metric's series that begin like this."""
    lines = stage.app.metrics.exposition().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


@ALL_DIALECTS
@pytest.mark.parametrize("status", [400, 500])
@pytest.mark.parametrize("begun", [False, True], ids=["first", "later"])
async def test_h19_error_event_inside_a_200_passes_and_counts_as_failed(
    sample: Sample, status: int, begun: bool
) -> None:
    before = sample.events if begun else ()
    script = complains(sample, status, *before)
    async with staged(script, script, **FREE) as stage:
        said = await asked(stage, sample)
        assert (said.status, said.body, said.whole) == (200, b"".join(before) + complaint(sample, status), True)
        facts = await stage.ended_one()
        assert (facts.outcome, bool(facts.failure)) == (Outcome.FAILED_AFTER_COMMIT, True)
        assert metric(stage, "crossover_failures_total{") == 1
        assert metric(stage, "crossover_requests_total{") == 1
        assert "finished" not in str(exported(stage, "crossover_requests_total{"))


def exported(stage: Stage, name: str) -> list[str]:
    text = stage.app.metrics.exposition().decode()
    return [line for line in text.splitlines() if line.startswith(name) and not line.endswith(" 0.0")]


# ---------------------------------------------------------------- what we say ourselves


async def silent(exchange: Exchange) -> None:
    await exchange.gone()


async def garbage(exchange: Exchange) -> None:
    await exchange.send(b"no HTTP\r\n\r\n")
    exchange.writer.close()


async def large_head(exchange: Exchange) -> None:
    await exchange.head("200 OK", "x-a: " + "x" * 200_000)
    exchange.writer.close()


async def empty_stream(exchange: Exchange) -> None:
    kind = "application/x-ndjson" if exchange.request.target.startswith("/api") else "text/event-stream"
    await exchange.stream_head(kind)
    await exchange.end()


OURS: dict[str, tuple[Script | None, int, str]] = {
    "gone": (None, 502, "backend_unreachable"),
    "reset": (refuses_connections, 502, "backend_broken"),
    "garbage": (garbage, 502, "backend_broken"),
    "large-head": (large_head, 502, "backend_broken"),
    "silent": (silent, 504, "first_byte_timeout"),
    "empty-stream": (empty_stream, 502, "backend_broken"),
}


@contextlib.asynccontextmanager
async def broken(way: str, **how: Any) -> AsyncIterator[Stage]:
    """Both engines broken in one way."""
    script = OURS[way][0]
    timeouts = {"timeouts": QUICK} if way == "silent" else {}
    async with staged(script or refuses, script or refuses, **FREE, **timeouts, **how) as stage:
        if script is None:
            await stage.a.close()
            await stage.b.close()
        yield stage


def require_our_shape(said: Said, dialect: Dialect, code: str) -> None:
    error: Any = said.json["error"]
    if dialect is Dialect.MESSAGES:
        assert said.json["type"] == "error"
        assert set(error) == {"type", "message"}
    elif dialect is Dialect.OLLAMA:
        assert isinstance(error, str)
    else:
        assert set(error) == {"message", "type", "param", "code"}
        assert error["code"] == code
    assert said.header("content-type") == "application/json"


@ALL_DIALECTS
@pytest.mark.parametrize("way", OURS)
@ON_ITS_LOOP
async def test_h19_engine_that_has_no_answer_is_502_or_504_in_our_shape(sample: Sample, way: str) -> None:
    _, status, code = OURS[way]
    async with broken(way) as stage:
        for streams in (True,) if way == "empty-stream" else (True, False):
            said = await asked(stage, sample, streams=streams)
            assert (said.status, said.whole) == (status, True)
            require_our_shape(said, sample.dialect, code)


@pytest.mark.parametrize("way", OURS)
@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
@ON_ITS_LOOP
async def test_h19_our_error_is_whole_over_every_kind_of_connection(way: str, version: str, host: str) -> None:
    async with broken(way, host=host) as stage:
        said = await asked(stage, SAMPLES[0], version=version)
        assert (said.status, said.whole) == (OURS[way][1], True)
        require_our_shape(said, Dialect.CHAT, OURS[way][2])


@contextlib.asynccontextmanager
async def full(**queue: float) -> AsyncIterator[Stage]:
    """Backends with one place each, both taken."""
    gate = asyncio.Event()

    async def held(exchange: Exchange) -> None:
        await stream(exchange, gate=gate)

    async with (
        staged(held, held, max_in_flight=1, queue=queue) as stage,
        RawClient(stage.app.port) as first,
        RawClient(stage.app.port) as second,
    ):
        for client in (first, second):
            await client.send(request(body=chat(stream=True)))
            assert (await client.head()).status == 200
        yield stage
        gate.set()
        for client in (first, second):
            while await client.chunk():
                pass


@ALL_DIALECTS
@pytest.mark.parametrize(
    ("queue", "status", "code"),
    [({"max_waiting": 0}, 429, "queue_full"), ({"max_wait_s": 0.05}, 503, "queue_timeout")],
    ids=["full", "late"],
)
async def test_h19_no_capacity_is_said_as_such_and_with_when_to_come_again(
    sample: Sample, queue: dict[str, float], status: int, code: str
) -> None:
    async with full(**queue) as stage:
        for streams in (True, False):
            said = await asked(stage, sample, streams=streams)
            assert (said.status, said.header("retry-after")) == (status, "1")
            require_our_shape(said, sample.dialect, code)


@ALL_DIALECTS
async def test_h19_busy_said_inside_a_200_by_both_engines_is_a_true_503(sample: Sample) -> None:
    if sample.dialect in (Dialect.MESSAGES, Dialect.RESPONSES):
        event = b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"full"}}\n\n'
    elif sample.dialect is Dialect.OLLAMA:
        event = b'{"error":{"message":"full","code":503}}\n'
    else:
        event = complaint(sample, 503)

    async def busy(exchange: Exchange) -> None:
        await exchange.stream_head(sample.content_type)
        await exchange.chunk(event)
        await exchange.end()

    async with staged(busy, busy) as stage:
        said = await asked(stage, sample)
        assert (said.status, said.header("retry-after")) == (503, "1")
        require_our_shape(said, sample.dialect, "backend_busy")


# ---------------------------------------------------------------- openai-python


@contextlib.asynccontextmanager
async def client_of(stage: Stage) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=url(stage.app, "/v1"), api_key="k", max_retries=0, timeout=20) as client:
        yield client


CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("chat.completions", {"model": "m", "messages": [{"role": "user", "content": "hi"}]}),
    "completions": ("completions", {"model": "m", "prompt": "hi"}),
    "responses": ("responses", {"model": "m", "input": "hi"}),
}
ALL_CALLS = pytest.mark.parametrize("call", CALLS)
BOTH = pytest.mark.parametrize("streams", [True, False], ids=["stream", "plain"])


async def called(client: AsyncOpenAI, call: str, headers: dict[str, str], *, streams: bool) -> list[Any]:
    """One call through the package; the events of a stream."""
    path, arguments = CALLS[call]
    place: Any = client
    for name in path.split("."):
        place = getattr(place, name)
    answer = await place.create(**arguments, extra_headers=headers, stream=streams)
    return [event async for event in answer] if streams else [answer]


@ALL_CALLS
@BOTH
async def test_h19_openai_python_raises_the_class_of_the_engines_status(call: str, streams: bool) -> None:
    async with staged(refuses, refuses, **FREE) as stage, client_of(stage) as client:
        for status, kind in CLASSES.items():
            for body in ("json", "newline", "html"):
                with pytest.raises(kind) as raised:
                    await called(client, call, {"x-status": str(status), "x-kind": body}, streams=streams)
                assert (type(raised.value), raised.value.status_code) == (kind, status)
                assert raised.value.response.headers["x-engine"] == "yes"
                if body != "html":
                    assert "told \u00e9" in raised.value.response.text


@ALL_CALLS
@BOTH
@pytest.mark.parametrize("way", ["gone", "reset", "garbage", "silent"])
@ON_ITS_LOOP
async def test_h19_openai_python_raises_a_server_error_for_an_engine_without_an_answer(
    call: str, streams: bool, way: str
) -> None:
    async with broken(way) as stage, client_of(stage) as client:
        with pytest.raises(openai.InternalServerError) as raised:
            await called(client, call, {}, streams=streams)
        assert (raised.value.status_code, raised.value.code) == OURS[way][1:]
        assert raised.value.request_id


@pytest.mark.parametrize("begun", [False, True], ids=["first", "later"])
@pytest.mark.parametrize("status", [400, 500])
async def test_h19_openai_python_raises_for_an_error_event_inside_a_200(begun: bool, status: int) -> None:
    sample = SAMPLES[0]
    script = complains(sample, status, *(sample.events if begun else ()))
    async with staged(script, script, **FREE) as stage, client_of(stage) as client:
        with pytest.raises(openai.APIError) as raised:
            await called(client, "chat", {}, streams=True)
        assert not isinstance(raised.value, openai.APIStatusError | openai.APIConnectionError)
        assert "no" in raised.value.message


@ALL_CALLS
async def test_h19_openai_python_raises_for_a_stream_that_its_engine_breaks_off(call: str) -> None:
    sample = next(each for each in SAMPLES if each.dialect.value == call)

    async def dies(exchange: Exchange) -> None:
        await exchange.stream_head(sample.content_type)
        await exchange.chunk(sample.events[0])
        await until(lambda: stage.app.desk.snapshot().in_flight, what="the request")
        exchange.writer.close()

    async with staged(dies, dies, **FREE) as stage, client_of(stage) as client:
        with pytest.raises(openai.APIError):
            await called(client, call, {}, streams=True)


@pytest.mark.parametrize(
    ("queue", "kind"),
    [({"max_waiting": 0}, openai.RateLimitError), ({"max_wait_s": 0.05}, openai.InternalServerError)],
    ids=["full", "late"],
)
@BOTH
async def test_h19_openai_python_raises_the_class_that_it_retries_when_there_is_no_capacity(
    queue: dict[str, float], kind: type[openai.APIStatusError], streams: bool
) -> None:
    async with full(**queue) as stage, client_of(stage) as client:
        with pytest.raises(kind) as raised:
            await called(client, "chat", {}, streams=streams)
        assert raised.value.response.headers["retry-after"] == "1"

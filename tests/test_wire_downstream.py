"""Heads, errors of our own, and an end that does not look like one."""

import asyncio

import orjson
import pytest
from fakes.ears import listen
from fakes.raw import RawClient, Said, ask, request
from fakes.serving import served, serving
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
from proxy.model import Because, Costs, Decision, Dialect, Policy, Reason, Regime, Role
from proxy.protocol.fields import Fields
from proxy.routing.out import Out
from proxy.wire.downstream import (
    PIECE_BYTES,
    Downstream,
    Reply,
    error_reply,
    kept_reply,
    stamps_of,
)
from proxy.wire.kept import Kept
from proxy.wire.request import Request

BECAUSE = Because(Policy.THRESHOLD, 3, 1, 2.5, 5, 9, Role.SPECULATIVE)


async def told(reply: Reply, method: str = "GET", version: str = "1.1") -> Said:
    async def handler(_: Request) -> Reply:
        return reply

    async with serving(handler) as port:
        return await ask(port, request("/", method=method, version=version), bodiless=method == "HEAD")


async def poured(
    *pieces: bytes, length: int | None = None, fields: Fields | None = None, stamps: bytes = b"", **asked: str
) -> Said:
    """An answer in these pieces."""

    async def handler(came: Request) -> None:
        down = Downstream(came)
        down.begin(200, fields or [], length=length, stamps=stamps)
        for piece in pieces:
            down.write(piece)
        down.end()

    async with serving(handler) as port:
        return await ask(port, request("/", **{"method": "GET", **asked}), bodiless=asked.get("method") == "HEAD")


async def cut_after(data: bytes, length: int | None = None) -> Said:
    async def handler(came: Request) -> None:
        down = Downstream(came)
        down.begin(200, [], length=length)
        down.write(data)
        down.cut(told=True)
        down.write(b"never")

    async with serving(handler) as port:
        return await ask(port, request("/", method="GET"))


# ---------------------------------------------------------------- cut


async def test_cut_answer_in_chunks_does_not_look_whole() -> None:
    assert not (await cut_after(b"half")).whole


async def test_cut_answer_with_a_length_does_not_look_whole() -> None:
    assert not (await cut_after(b"half", 9)).whole


async def test_what_was_written_before_the_cut_arrives() -> None:
    assert (await cut_after(b"x" * 300_000)).body == b"x" * 300_000


@pytest.mark.parametrize("told", [False, True])
async def test_cut_answer_that_only_the_closing_ends_is_reset_unless_its_client_was_told(told: bool) -> None:
    async def handler(came: Request) -> None:
        down = Downstream(came)
        down.begin(200, [(b"content-type", b"text/event-stream")], length=None)
        down.write(b"half")
        down.cut(told=told)

    async with serving(handler) as port:
        ear, _ = await listen(port, "/", b"", "1.0")
        await until(lambda: ear.closed, what="the end of the connection")
        assert (ear.whole.endswith(b"half"), ear.reset) == (True, not told)


async def test_handler_of_a_cut_answer_comes_to_its_end() -> None:
    ended = asyncio.Event()

    async def handler(came: Request) -> None:
        down = Downstream(came)
        down.begin(200, [], length=None)
        down.cut(told=False)
        await asyncio.sleep(0.05)  # sleeps: until the connection is gone
        ended.set()

    async with serving(handler) as port:
        await ask(port, request("/", method="GET"))
        async with asyncio.timeout(30):
            await ended.wait()


# ---------------------------------------------------------------- framing


async def test_answer_without_a_length_goes_in_chunks() -> None:
    said = await poured(b"ab", b"", b"cd")
    assert (said.body, said.whole, said.header("transfer-encoding")) == (b"abcd", True, "chunked")


async def test_answer_with_a_length_goes_as_it_is() -> None:
    said = await poured(b"ab", b"cd", length=4)
    assert (said.body, said.whole, said.header("content-length")) == (b"abcd", True, "4")


async def test_length_among_the_fields_is_told_once() -> None:
    said = await poured(b"ab", fields=[(b"Content-Length", b"2")], length=2)
    assert [name.lower() for name, _ in said.headers].count("content-length") == 1
    assert (said.body, said.header("transfer-encoding")) == (b"ab", None)


async def test_chunks_that_are_framed_already_pass_as_they_are() -> None:
    async def handler(came: Request) -> None:
        down = Downstream(came)
        down.begin(200, [], length=None)
        down.pass_framed(b"2;a=b\r\nhi\r\n1\r\n!\r\n")
        down.end()

    async with serving(handler) as port:
        said = await ask(port, request("/", method="GET"))
        assert (said.body, said.whole) == (b"hi!", True)


async def test_answer_beyond_its_length_is_not_taken_for_the_next_one() -> None:
    async def handler(came: Request) -> Reply | None:
        if came.target == "/next":
            return Reply(200, [], b"next")
        down = Downstream(came)
        down.begin(200, [], length=2)
        down.write(b"ab")
        down.write(b"HTTP/1.1 500 No\r\n\r\n")
        down.end()
        return None

    async with serving(handler) as port, RawClient(port) as client:
        await client.send(request("/", method="GET"))
        assert (await client.answer()).body == b"ab"
        await client.send(request("/next", method="GET"))
        assert (await client.answer()).body == b"next"


async def test_answer_that_ends_short_of_its_length_ends_the_connection() -> None:
    assert not (await poured(b"ab", length=3)).whole


async def test_answer_to_head_has_no_body_and_keeps_its_length() -> None:
    said = await poured(b"ab", length=2, method="HEAD")
    assert (said.body, said.header("content-length"), said.header("transfer-encoding")) == (b"", "2", None)


async def test_answer_to_head_is_not_in_chunks() -> None:
    said = await poured(b"ab", method="HEAD")
    assert (said.header("content-length"), said.header("transfer-encoding")) == (None, None)


async def test_client_of_http_1_0_gets_no_chunks() -> None:
    said = await poured(b"ab", b"cd", version="1.0")
    assert (said.body, said.header("transfer-encoding")) == (b"abcd", None)


async def test_answer_that_only_the_closing_ends_ends_the_connection_of_a_client_that_would_keep_it() -> None:
    async def handler(came: Request) -> None:
        down = Downstream(came)
        down.begin(200, [], length=None)
        down.write(b"all")
        down.end()

    async with serving(handler) as port, RawClient(port) as client:
        await client.send(request("/", b"", "connection: keep-alive", method="GET", version="1.0"))
        said = await client.answer()
        assert (said.body, said.header("connection")) == (b"all", None)


async def test_end_is_written_once() -> None:
    async def handler(came: Request) -> None:
        down = Downstream(came)
        down.begin(200, [], length=None)
        for _ in range(2):
            down.end()
            down.cut(told=False)

    async with serving(handler) as port, RawClient(port) as client:
        await client.send(request("/", b"", "connection: close", method="GET"))
        assert (await client.rest()).count(b"0\r\n\r\n") == 1


@pytest.mark.parametrize("status", [204, 304])
async def test_answer_that_has_no_body_has_none(status: int) -> None:
    async def handler(came: Request) -> None:
        down = Downstream(came)
        down.begin(status, [(b"content-length", b"2")] if status == 204 else [], length=None)
        down.write(b"no")
        down.end()

    async with serving(handler) as port, RawClient(port) as client:
        for _ in range(2):
            await client.send(request("/", method="GET"))
            said = await client.answer()
            names = {name.lower() for name, _ in said.headers}
            assert (said.status, names & {"content-length", "transfer-encoding"}) == (status, set())


async def test_large_reply_is_written_as_its_client_takes_it() -> None:
    body = bytes(range(256)) * 40_000

    async def handler(_: Request) -> Reply:
        return Reply(200, [], body)

    async with served(handler) as server, RawClient(server.port) as client:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await client.send(request("/", method="GET"))
        [connection] = server.front.connections
        await until(lambda: connection._full, what="a full connection")
        assert connection.transport is not None
        assert connection.transport.get_write_buffer_size() <= 3 * PIECE_BYTES
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        assert (await client.answer()).body == body


# ---------------------------------------------------------------- heads


async def stamped(fields: Fields, stamps: bytes) -> list[tuple[str, str]]:
    """The head of an answer but for what every one has."""
    said = await poured(b"", fields=fields, length=0, stamps=stamps)
    return [field for field in said.headers if field[0] not in ("Date", "Server", "Content-Length")]


async def test_order_and_repetition_of_fields_are_the_backends() -> None:
    fields = [(b"X-B", b"1"), (b"x-a", b"2"), (b"X-B", b"3")]
    expected = [("X-B", "1"), ("x-a", "2"), ("X-B", "3"), ("x-c", "4")]
    assert await stamped(fields, b"x-c: 4\r\n") == expected


@pytest.mark.parametrize("name", [b"x-request-id", b"X-Request-ID", b"X-Crossover-Reason", b"x-crossover-because"])
async def test_stamp_takes_the_place_of_the_backends_field(name: bytes) -> None:
    stamps = b"x-request-id: ours\r\n%b: ours\r\n" % name.lower()
    head = await stamped([(name, b"theirs"), (b"x-crossover-cached", b"1")], stamps)
    assert ("x-crossover-cached", "1") in head, "a field of which no stamp speaks crosses"
    assert {value for each, value in head if each.lower() == name.decode().lower()} == {"ours"}


@pytest.mark.parametrize(
    ("content_type", "told"),
    [(b"Text/Event-Stream; charset=utf-8", True), (b"application/x-ndjson", True), (b"application/json", False)],
)
@pytest.mark.parametrize("name", [b"Content-Type", b"CONTENT-type"])
async def test_stream_tells_proxies_in_front_not_to_buffer_it(name: bytes, content_type: bytes, told: bool) -> None:
    head = await stamped([(name, content_type), (b"x-accel-buffering", b"yes")], b"")
    said = [value for each, value in head if each.lower() == "x-accel-buffering"]
    assert said == (["no"] if told else ["yes"])


@pytest.mark.parametrize(("name", "value"), [("server", "crossover"), ("date", None)])
async def test_field_that_servers_add_is_there_once(name: str, value: str | None) -> None:
    said = await poured(b"")
    assert [each.lower() for each, _ in said.headers].count(name) == 1
    assert said.header(name) == (value or said.header(name))


@pytest.mark.parametrize("name", [b"Server", b"dAtE"])
async def test_field_that_the_backend_says_is_not_added(name: bytes) -> None:
    said = await poured(b"", fields=[(name, b"theirs")])
    assert [value for each, value in said.headers if each.lower() == name.decode().lower()] == ["theirs"]


def test_stamps_tell_the_decision() -> None:
    decision = Decision(Role.BASELINE, Reason.OVERFLOW, Regime(), BECAUSE)
    assert stamps_of("id-%1", decision).split(b"\r\n") == [
        b"x-request-id: id-%1",
        b"x-crossover-backend: baseline",
        b"x-crossover-reason: overflow",
        b"x-crossover-in-flight: speculative=3, baseline=1",
        b"x-crossover-because: policy=threshold, regime=speculative, smoothed=2.50, enter_at=5, leave_at=9",
        b"",
    ]


def test_stamps_tell_no_number_that_the_policy_does_not_look_at() -> None:
    by_cost = BECAUSE._replace(smoothed=None, enter_at=None, leave_at=None, regime=None, costs=Costs(1.0, 2.0))
    for because, told in (
        (by_cost, b"policy=threshold, speculative_cost_s=1, baseline_cost_s=2"),
        (by_cost._replace(leave_at=9, costs=None), b"policy=threshold, leave_at=9"),
    ):
        decision = Decision(Role.BASELINE, Reason.CHEAPER, Regime(), because)
        assert stamps_of("id", decision).endswith(b"x-crossover-because: %b\r\n" % told)


def test_stamps_tell_why_a_backend_was_out() -> None:
    because = BECAUSE._replace(speculative_out=Out.CIRCUIT_OPEN, baseline_out=Out.FULL)
    decision = Decision(Role.BASELINE, Reason.ONLY_ELIGIBLE, Regime(), because)
    assert stamps_of("id", decision).endswith(b", speculative_out=circuit open, baseline_out=full\r\n")


@pytest.mark.parametrize(
    ("costs", "told"),
    [
        (Costs(2.61234, 0.5), "speculative_cost_s=2.612, baseline_cost_s=0.5"),
        (Costs(1e-9, 12345.6, True), "speculative_cost_s=1e-09, baseline_cost_s=1.235e+04, extrapolated"),
        (Costs(1.0, 2.0, False, 3), "speculative_cost_s=1, baseline_cost_s=2, baseline_failures=3"),
    ],
)
def test_stamps_tell_what_each_choice_would_cost(costs: Costs, told: str) -> None:
    decision = Decision(Role.BASELINE, Reason.CHEAPER, Regime(), BECAUSE._replace(costs=costs))
    assert f"leave_at=9, {told}\r\n".encode() in stamps_of("id", decision)


def test_stamps_tell_no_backend_when_there_was_no_room() -> None:
    decision = Decision(None, Reason.FULL, Regime(), BECAUSE)
    assert stamps_of("id-1", decision) == b"x-request-id: id-1\r\n"


def test_failures_that_weighed_as_load_are_told_with_the_numbers() -> None:
    decision = Decision(Role.BASELINE, Reason.OVERFLOW, Regime(), BECAUSE._replace(recent_failures=3))
    assert stamps_of("id-1", decision).endswith(b", leave_at=9, recent_failures=3\r\n")


# ---------------------------------------------------------------- kept answers


async def test_kept_answer_is_told_as_it_came() -> None:
    kept = Kept(503, [(b"Content-Type", b"text/html"), (b"Content-Length", b"2"), (b"retry-after", b"3")], b"no")
    said = await told(kept_reply(kept, b""))
    assert (said.status, said.body, said.header("retry-after"), said.header("content-type")) == (
        503,
        b"no",
        "3",
        "text/html",
    )


async def test_kept_answer_to_head_keeps_its_length() -> None:
    said = await told(kept_reply(Kept(200, [(b"content-length", b"42")], b""), b"", bodiless=True), "HEAD")
    assert (said.header("content-length"), said.header("transfer-encoding")) == ("42", None)


async def test_kept_answer_in_chunks_is_told_whole() -> None:
    said = await told(kept_reply(Kept(200, [(b"transfer-encoding", b"chunked")], b"body"), b""))
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
    said = await told(error_reply(error, Dialect.CHAT))
    assert (said.status, said.header("content-type"), list(orjson.loads(said.body))) == (
        status,
        "application/json",
        ["error"],
    )


def said_in(reply: Reply, name: bytes) -> bytes | None:
    return next((value for each, value in reply.fields if each.lower() == name), None)


@pytest.mark.parametrize(("seconds", "header"), [(None, None), (0.2, b"1"), (7.4, b"7")])
def test_retry_after_is_whole_seconds(seconds: float | None, header: bytes | None) -> None:
    error = BackendBroken("m", retry_after_s=seconds)
    assert said_in(error_reply(error, Dialect.CHAT), b"retry-after") == header


def test_how_a_key_is_sent_is_told_where_one_is_asked_for() -> None:
    told = [error_reply(kind("m"), Dialect.CHAT) for kind in (KeyRefused, UnknownRoute)]
    assert [said_in(each, b"www-authenticate") for each in told] == [b"Bearer", None]


def test_allowed_methods_are_told() -> None:
    error = MethodNotAllowed("m", allow=frozenset({"PUT", "POST"}))
    assert said_in(error_reply(error, Dialect.CHAT), b"allow") == b"POST, PUT"


async def test_connection_closes_when_asked() -> None:
    said = await told(error_reply(ShuttingDown("m"), Dialect.CHAT, close=True))
    assert said.header("connection") == "close"


def test_error_has_the_anthropic_shape_on_messages() -> None:
    assert orjson.loads(error_reply(UnknownRoute("m"), Dialect.MESSAGES).body)["type"] == "error"

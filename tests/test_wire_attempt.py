"""What an answer says of its backend before anything is passed on."""

import asyncio
from typing import Any

import pytest
from fakes.answers import FakeAnswer, FakeUpstream
from fakes.dialects import SAMPLES, Sample
from fakes.until import turns

from proxy.errors import (
    BackendBroken,
    BackendSilent,
    BackendUnreachable,
    FirstByteTimeout,
    StaleConnection,
    UpstreamError,
)
from proxy.model import Dialect
from proxy.wire import attempt
from proxy.wire.attempt import PEEK_MAX_BYTES, Opened, Verdict, open_answer
from proxy.wire.connection import Call

CALL = Call("POST", b"POST /v1/chat/completions HTTP/1.1\r\n\r\n", b"{}")
ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n'
WORD = b'data: {"choices":[{"index":0,"delta":{"content":"w"},"finish_reason":null}]}\n\n'
ABORT = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"abort"}]}\n\n'
JSON = [(b"content-type", b"application/json")]


def present() -> "asyncio.Task[Any]":
    task = asyncio.current_task()
    assert task is not None
    return task


async def opened(answer: FakeAnswer, dialect: Dialect = Dialect.CHAT, first_byte_s: float = 1.0) -> Opened:
    return (await open_answer(FakeUpstream([answer]), CALL, dialect, task=present(), first_byte_s=first_byte_s))[0]


def failing(code: object) -> bytes:
    return b'data: {"error":{"message":"m","type":"t","code":%s}}\n\n' % str(code).encode()


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        (200, Verdict.GOOD),
        (204, Verdict.GOOD),
        (307, Verdict.GOOD),
        (400, Verdict.CLIENT_FAULT),
        (404, Verdict.CLIENT_FAULT),
        (429, Verdict.BUSY),
        (500, Verdict.FAILED),
        (502, Verdict.FAILED),
        (503, Verdict.BUSY),
    ],
)
async def test_plain_answer_is_judged_by_its_status(status: int, verdict: Verdict) -> None:
    assert (await opened(FakeAnswer(status=status, fields=JSON))).verdict is verdict


@pytest.mark.parametrize(
    ("first", "verdict"),
    [
        (WORD, Verdict.GOOD),
        (failing(503), Verdict.BUSY),
        (failing(429), Verdict.BUSY),
        (failing(400), Verdict.CLIENT_FAULT),
        (failing(500), Verdict.FAILED),
        (failing('"odd"'), Verdict.FAILED),
        (ABORT, Verdict.BUSY),
        (ROLE + ABORT, Verdict.BUSY),
        (ROLE + failing(503), Verdict.BUSY),
        (WORD + ABORT, Verdict.GOOD),
    ],
)
async def test_stream_is_judged_by_how_it_begins(first: bytes, verdict: Verdict) -> None:
    assert (await opened(FakeAnswer([first], hangs=True))).verdict is verdict


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.dialect.value)
async def test_good_stream_is_good_in_every_dialect(sample: Sample) -> None:
    answer = FakeAnswer([sample.events[0]], fields=[(b"Content-Type", sample.content_type.encode())], hangs=True)
    assert (await opened(answer, sample.dialect)).verdict is Verdict.GOOD


async def test_event_in_pieces_is_read_to_its_end() -> None:
    assert (await opened(FakeAnswer([failing(503)[:9], failing(503)[9:]], hangs=True))).verdict is Verdict.BUSY


async def test_what_was_read_is_kept_for_the_client() -> None:
    assert (await opened(FakeAnswer([WORD[:9], WORD[9:]], hangs=True))).peeked == [WORD[:9], WORD[9:]]


async def test_nothing_beyond_the_first_content_is_read() -> None:
    answer = FakeAnswer([WORD, WORD])
    await opened(answer)
    assert await answer.read() == WORD


async def test_slow_stream_is_not_kept_waiting_for_its_first_content(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt, "PEEK_MORE_S", 0.01)
    assert (await opened(FakeAnswer([ROLE], hangs=True))).verdict is Verdict.GOOD


async def test_comment_is_not_kept_waiting_for_the_first_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt, "PEEK_MORE_S", 0.01)
    assert (await opened(FakeAnswer([b": alive\n\n"], hangs=True))).peeked == [b": alive\n\n"]


async def test_stream_of_comments_is_mute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt, "PEEK_MORE_S", 0.01)
    assert (await opened(FakeAnswer([b": alive\n\n"], hangs=True))).mute


async def test_half_a_comment_is_waited_for() -> None:
    with pytest.raises(FirstByteTimeout):
        await opened(FakeAnswer([b": ali"], hangs=True), first_byte_s=0.05)


async def test_first_event_that_is_too_long_is_passed_on_unjudged() -> None:
    answer = FakeAnswer([b"data: " + b"x" * PEEK_MAX_BYTES], hangs=True)
    assert (await opened(answer)).verdict is Verdict.GOOD


async def test_stream_that_ends_before_its_first_event_is_broken() -> None:
    with pytest.raises(BackendBroken):
        await opened(FakeAnswer([b"data: {"]))


async def test_whole_short_stream_is_known_to_be_whole() -> None:
    assert (await opened(FakeAnswer([ROLE]))).whole


@pytest.mark.parametrize(
    ("fields", "dialect"),
    [
        ([(b"content-type", b"application/json")], Dialect.CHAT),
        ([(b"content-type", b"text/event-stream")], Dialect.PLAIN),
        ([(b"content-type", b"text/event-stream"), (b"content-encoding", b"gzip")], Dialect.CHAT),
    ],
    ids=["json", "not_ours", "packed"],
)
async def test_body_that_is_no_stream_of_ours_is_not_looked_into(
    fields: list[tuple[bytes, bytes]], dialect: Dialect
) -> None:
    assert (await opened(FakeAnswer([failing(503)], fields=fields), dialect)).scanner is None


@pytest.mark.parametrize("answer", [FakeAnswer(hangs=True), FakeAnswer([b"data: {"], hangs=True)], ids=["no", "half"])
async def test_first_event_has_a_limit(answer: FakeAnswer) -> None:
    with pytest.raises(FirstByteTimeout):
        await opened(answer, first_byte_s=0.02)


async def forsaken(answers: list[FakeAnswer | UpstreamError], *, heard: bool) -> Opened:
    """The only wait is forsaken as soon as it is one of those that were, or were not, heard of."""
    upstream = FakeUpstream(answers)
    opening = asyncio.ensure_future(_open(upstream))
    await turns()
    for wait in tuple(upstream.deadlines[1.0].waits):
        assert wait.heard is heard
        wait.forsake()
    return await opening


async def _open(upstream: FakeUpstream) -> Opened:
    return (await open_answer(upstream, CALL, Dialect.CHAT, task=present(), first_byte_s=1.0))[0]


async def test_forsaken_wait_is_told_from_one_that_lasted_too_long() -> None:
    with pytest.raises(BackendSilent):
        await forsaken([], heard=False)


@pytest.mark.parametrize("pieces", [[], [b"data: {"]], ids=["head", "half an event"])
async def test_stream_has_been_heard_of_from_its_first_bytes_on_behind_the_head(pieces: list[bytes]) -> None:
    answer = FakeAnswer(pieces, hangs=True)
    with pytest.raises(BackendSilent):
        await forsaken([answer], heard=bool(pieces))
    assert answer.closed == 1


async def test_stream_has_come_as_soon_as_its_first_bytes_lie_there() -> None:
    answer = FakeAnswer(hangs=True)
    upstream = FakeUpstream([answer])
    opening = asyncio.ensure_future(_open(upstream))
    await turns()
    [wait] = upstream.deadlines[1.0].waits
    assert not wait.has_come()
    answer._left.append(WORD)
    assert wait.has_come()
    opening.cancel()


async def test_head_has_the_same_limit() -> None:
    with pytest.raises(FirstByteTimeout):
        await open_answer(FakeUpstream(), CALL, Dialect.CHAT, task=present(), first_byte_s=0.02)


@pytest.mark.parametrize(
    "answer",
    [FakeAnswer(hangs=True), FakeAnswer([b"data: {"]), FakeAnswer(failure=BackendBroken("broke"))],
    ids=["late", "ended", "broken"],
)
async def test_answer_that_is_given_up_is_closed(answer: FakeAnswer) -> None:
    with pytest.raises((FirstByteTimeout, BackendBroken)):
        await opened(answer, first_byte_s=0.02)
    assert answer.closed == 1


async def test_stale_connection_is_replayed_on_a_fresh_one() -> None:
    upstream = FakeUpstream([StaleConnection("stale"), FakeAnswer([WORD])])
    await open_answer(upstream, CALL, Dialect.CHAT, task=present(), first_byte_s=1)
    assert [fresh for _, fresh in upstream.calls] == [False, True]


async def test_replay_is_told() -> None:
    upstream = FakeUpstream([StaleConnection("stale"), FakeAnswer([WORD])])
    assert (await open_answer(upstream, CALL, Dialect.CHAT, task=present(), first_byte_s=1))[1] is True


async def test_second_stale_connection_is_the_end() -> None:
    upstream = FakeUpstream([StaleConnection("stale"), StaleConnection("stale")])
    with pytest.raises(StaleConnection):
        await open_answer(upstream, CALL, Dialect.CHAT, task=present(), first_byte_s=1)


async def test_other_failures_are_not_replayed() -> None:
    upstream = FakeUpstream([BackendUnreachable("no"), FakeAnswer([WORD])])
    with pytest.raises(BackendUnreachable):
        await open_answer(upstream, CALL, Dialect.CHAT, task=present(), first_byte_s=1)

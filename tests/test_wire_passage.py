"""One judged answer on its way to the client, whatever becomes of either side."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from fakes.answers import SSE, FakeAnswer
from fakes.raw import RawClient, Said, ask, request
from fakes.serving import serving
from fakes.until import until

from proxy.errors import BackendBroken, ShuttingDown
from proxy.model import Dialect, Usage
from proxy.protocol.sse import Scanner
from proxy.wire.attempt import Opened, Verdict
from proxy.wire.passage import READ_MAX_BYTES, Passage, Patience
from proxy.wire.request import Request

JSON = [(b"content-type", b"application/json")]
ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n'
WORD = b'data: {"choices":[{"index":0,"delta":{"content":"w"},"finish_reason":null}]}\n\n'
STOP = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":3}}\n\n'
DONE = b"data: [DONE]\n\n"


def streaming(*pieces: bytes, peeked: tuple[bytes, ...] = (), dialect: Dialect = Dialect.CHAT, **more: Any) -> Opened:
    """A stream of which `peeked` was read for judging."""
    scanner = Scanner(dialect)
    for piece in peeked:
        scanner.feed(piece)
    answer: Any = FakeAnswer(pieces, fields=list(SSE), **more)
    return Opened(answer, Verdict.GOOD, scanner, list(peeked))


def plain(*pieces: bytes, **more: Any) -> Opened:
    answer: Any = FakeAnswer(pieces, fields=list(JSON), **more)
    return Opened(answer, Verdict.GOOD)


def passage_of(
    opened: Opened,
    *,
    sequences: int = 1,
    first_byte_s: float = 10.0,
    stall_s: float = 10.0,
    dialect: Dialect = Dialect.CHAT,
    clock: Callable[[], float] | None = None,
) -> Passage:
    return Passage(
        opened,
        dialect,
        sequences=sequences,
        limits=Patience(first_byte_s, stall_s),
        clock=clock or asyncio.get_running_loop().time,
        on_bytes=lambda: None,
    )


async def passed(passage: Passage) -> Said:
    async def handler(came: Request) -> None:
        await passage.run(came, b"x-request-id: id-1\r\n")

    async with serving(handler) as port:
        return await ask(port, request("/", method="GET"))


# ---------------------------------------------------------------- whole answers


async def test_peeked_bytes_come_first() -> None:
    assert (await passed(passage_of(streaming(WORD, STOP, DONE, peeked=(ROLE,))))).body == ROLE + WORD + STOP + DONE


async def test_peeked_bytes_are_not_read_twice() -> None:
    """A half event in them, read twice, would hide the end of the stream."""
    opened = streaming(WORD[20:] + STOP + DONE, peeked=(ROLE, WORD[:20]))
    passage = passage_of(opened)
    await passed(passage)
    assert opened.scanner is not None and opened.scanner.events == 4 and passage.error is None


async def test_usage_of_peeked_events_counts_once() -> None:
    event = (
        b'data: {"text":"w","meta_info":{"finish_reason":{"type":"stop"},"prompt_tokens":2,"completion_tokens":3}}\n\n'
    )
    opened = streaming(DONE, peeked=(event,), dialect=Dialect.GENERATE)
    passage = passage_of(opened, dialect=Dialect.GENERATE)
    await passed(passage)
    assert passage.usage == Usage(2, 3)


async def test_answer_that_was_read_to_its_end_is_not_read_again() -> None:
    opened = streaming(peeked=(WORD, STOP, DONE), hangs=True)
    opened.whole = True
    assert (await passed(passage_of(opened))).whole


async def test_usage_of_a_stream_is_known() -> None:
    passage = passage_of(streaming(WORD, STOP, USAGE, DONE))
    await passed(passage)
    assert passage.usage == Usage(5, 3)


async def test_usage_of_a_plain_answer_is_known() -> None:
    passage = passage_of(plain(b'{"usage":{"prompt_tokens":5,', b'"completion_tokens":3}}'))
    await passed(passage)
    assert passage.usage == Usage(5, 3)


async def test_long_plain_answer_is_passed_and_not_kept() -> None:
    passage = passage_of(plain(b"x" * READ_MAX_BYTES, b"y"))
    said = await passed(passage)
    assert (len(said.body), passage.usage) == (READ_MAX_BYTES + 1, Usage())


def a_second_a_piece(opened: Opened) -> Callable[[], float]:
    """A clock that stands still until the answer gives its next piece."""
    answer = opened.answer
    assert isinstance(answer, FakeAnswer)
    return lambda: float(len(answer.pieces) - len(answer._left))


async def test_first_token_is_timed_at_its_writing() -> None:
    opened = streaming(ROLE, WORD, STOP, DONE)
    passage = passage_of(opened, clock=a_second_a_piece(opened))
    await passed(passage)
    assert passage.ttft_s(0.0) == 2.0


async def test_plain_answer_has_no_first_token() -> None:
    passage = passage_of(plain(b"{}"))
    await passed(passage)
    assert passage.ttft_s(0.0) is None


async def test_time_per_token_needs_usage() -> None:
    passage = passage_of(streaming(WORD, WORD, STOP, DONE))
    await passed(passage)
    assert passage.tpot_s(passage.usage.completion_tokens) is None


async def test_time_per_token_is_the_span_over_the_tokens_after_the_first() -> None:
    opened = streaming(WORD, WORD, WORD, STOP + USAGE + DONE)
    passage = passage_of(opened, clock=a_second_a_piece(opened))
    await passed(passage)
    assert passage.tpot_s(passage.usage.completion_tokens) == 3 / 2


# ---------------------------------------------------------------- ends


@pytest.mark.parametrize("end", [DONE, STOP, STOP + DONE], ids=["done", "finish", "both"])
async def test_stream_with_an_end_is_whole(end: bytes) -> None:
    assert (await passed(passage_of(streaming(WORD, end)))).whole


async def test_finish_of_one_of_several_sequences_is_no_end() -> None:
    passage = passage_of(streaming(WORD, STOP), sequences=2)
    said = await passed(passage)
    assert (said.whole, passage.error is not None) == (False, True)


async def test_stream_without_an_end_is_cut() -> None:
    passage = passage_of(streaming(WORD))
    said = await passed(passage)
    assert (said.whole, passage.error is not None and passage.error.code) == (False, "stream_cut")


async def test_broken_stream_tells_why_at_an_event_boundary() -> None:
    passage = passage_of(streaming(WORD, WORD[:30], failure=BackendBroken("broke")))
    said = await passed(passage)
    assert said.body.startswith(WORD + b'data: {"error":{"message":"broke"') and said.body.endswith(b"}\n\n")


async def test_broken_event_that_is_too_long_to_hold_gets_no_error_inside_it() -> None:
    passage = passage_of(streaming(b"data: " + b"x" * 100_000, failure=BackendBroken("broke")))
    said = await passed(passage)
    assert (said.whole, b"error" in said.body) == (False, False)


async def test_silence_is_told_as_a_stall() -> None:
    passage = passage_of(streaming(WORD, hangs=True), stall_s=0.02)
    assert await code_of_the_silence(passage) == "stall_timeout"


@pytest.mark.parametrize("opened", [plain(hangs=True), streaming(b": ping\n\n", hangs=True)])
async def test_silence_before_the_first_data_is_none_of_an_answer_that_has_begun(opened: Opened) -> None:
    passage = passage_of(opened, first_byte_s=0.05, stall_s=0.01)
    assert await code_of_the_silence(passage) == "first_byte_timeout"


async def code_of_the_silence(passage: Passage) -> str | None:
    said = await passed(passage)
    assert not said.whole
    return passage.error.code if passage.error is not None else None


# ---------------------------------------------------------------- the other side


async def test_answer_is_closed_when_all_was_passed() -> None:
    passage = passage_of(streaming(WORD, STOP, DONE))
    await passed(passage)
    assert passage.opened.answer.closed  # type: ignore[attr-defined]


async def test_answer_is_closed_when_the_client_leaves() -> None:
    passage = passage_of(streaming(WORD, hangs=True))

    async def handler(came: Request) -> None:
        await passage.run(came, b"")

    async with serving(handler) as port:
        async with RawClient(port) as client:
            await client.send(request("/", method="GET"))
            await client.reader.readuntil(WORD)
        await until(lambda: passage.opened.answer.closed, what="the answer being closed")  # type: ignore[attr-defined]


async def test_nothing_is_committed_before_the_head_is_sent() -> None:
    assert not passage_of(streaming(WORD)).committed


async def test_answer_that_was_passed_is_committed() -> None:
    passage = passage_of(streaming(WORD, DONE))
    await passed(passage)
    assert passage.committed


async def test_complaint_of_the_engine_is_noticed_and_passed() -> None:
    complaint = b'data: {"error":{"message":"m","code":500}}\n\n'
    passage = passage_of(streaming(WORD, complaint, DONE))
    said = await passed(passage)
    assert (passage.complained, passage.error, said.body) == (True, None, WORD + complaint + DONE)


async def test_passage_ended_from_outside_tells_the_reason() -> None:
    passage = passage_of(streaming(WORD, failure=BackendBroken("closed")))
    passage.end(ShuttingDown("going down"))
    assert b"going down" in (await passed(passage)).body


async def test_pings_do_not_put_the_end_of_a_mute_stream_off_nor_speak_for_the_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("proxy.wire.express.LIVES_EVERY_S", 0.0)
    lives: list[bool] = []
    opened = streaming(b": ping\n\n", *[b": ping\n\n"] * 5, WORD, STOP, DONE)
    passage = passage_of(opened)
    passage._on_bytes = lambda: lives.append(True)
    await passed(passage)
    assert len(lives) == 3, "a comment was taken for a token"

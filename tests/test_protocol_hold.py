"""Held bytes: all pass unchanged and in order, and what has passed ends where an event ends."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.model import Dialect
from proxy.protocol.hold import HOLD_MAX_BYTES, EventHold
from proxy.protocol.sse import Scanner

PIECES = st.lists(
    st.sampled_from([b"data: a", b"event: b", b": c", b"x", b"\n", b"\r", b"\r\n", b"\n\n", b"\r\r", b"\r\n\r\n", b""]),
    max_size=40,
)


def at_boundary(passed: bytes, dialect: Dialect) -> bool:
    if dialect is Dialect.OLLAMA:
        return passed == b"" or passed.endswith(b"\n")
    scanner = Scanner(dialect)
    scanner.feed(passed)
    return scanner.at_boundary


def test_whole_events_pass_at_once_and_the_same() -> None:
    hold = EventHold(Dialect.CHAT)
    data = b"data: a\n\ndata: b\n\n"
    assert hold.feed(data) is data
    assert hold.rest() == b""


def test_an_unfinished_event_is_held_until_it_ends() -> None:
    hold = EventHold(Dialect.CHAT)
    assert hold.feed(b"data: a\n\ndata: b") == b"data: a\n\n"
    assert hold.rest() == b"data: b"
    assert hold.feed(b"c\n") == b""
    assert hold.feed(b"\ndata: d") == b"data: bc\n\n"
    assert hold.rest() == b"data: d"


@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
def test_every_line_ending_ends_an_event_byte_by_byte(ending: bytes) -> None:
    stream = (b"event: a\ndata: b\n\n" * 3).replace(b"\n", ending)
    hold = EventHold(Dialect.MESSAGES)
    passed = b"".join(hold.feed(stream[at : at + 1]) for at in range(len(stream)))
    assert passed + hold.rest() == stream
    assert at_boundary(passed, Dialect.MESSAGES)
    assert hold.rest().strip() == b""


def test_a_comment_line_passes_without_waiting_for_an_event() -> None:
    hold = EventHold(Dialect.CHAT)
    assert hold.feed(b": ping\n") == b": ping\n"
    assert hold.feed(b"data: a\n\n: pi") == b"data: a\n\n"
    assert hold.feed(b"ng\ndata: b") == b": ping\n"
    assert hold.feed(b"\n: inside\n") == b""


@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
def test_of_many_comments_all_whole_ones_pass(ending: bytes) -> None:
    hold, comments = EventHold(Dialect.CHAT), (b": a\n" * 3).replace(b"\n", ending)
    assert hold.feed(comments + b": b") == comments
    assert hold.feed(ending + b": c" + ending + b"data: d") == b": b" + ending + b": c" + ending
    assert hold.rest() == b"data: d"


def test_lines_of_ollama_end_at_the_line_end() -> None:
    hold = EventHold(Dialect.OLLAMA)
    assert hold.feed(b'{"a":1}\n{"b"') == b'{"a":1}\n'
    assert hold.feed(b":2}\n") == b'{"b":2}\n'


def test_plain_answers_are_not_held() -> None:
    hold = EventHold(Dialect.PLAIN)
    assert hold.feed(b"data: a") == b"data: a"
    assert hold.rest() == b""


@pytest.mark.parametrize("dialect", [Dialect.CHAT, Dialect.OLLAMA])
def test_a_long_event_passes_and_holding_begins_anew_behind_it(dialect: Dialect) -> None:
    end = b"\n" if dialect is Dialect.OLLAMA else b"\n\n"
    hold = EventHold(dialect)
    assert hold.feed(b"a" * HOLD_MAX_BYTES) == b""
    assert len(hold.feed(b"a")) == HOLD_MAX_BYTES + 1
    assert hold.overflowed
    assert hold.rest() == b""
    assert hold.feed(b"b" * 100_000) == b"b" * 100_000
    assert hold.feed(end[:-1]) == end[:-1]
    assert hold.feed(end[-1:] + b"data: c") == end[-1:]
    assert not hold.overflowed
    assert hold.rest() == b"data: c"
    assert hold.feed(end) == b"data: c" + end


def test_a_colon_inside_a_long_event_is_no_comment() -> None:
    hold = EventHold(Dialect.CHAT)
    hold.feed(b"data: " + b":" * HOLD_MAX_BYTES)
    assert hold.feed(b"a\nb") == b"a\nb"
    assert hold.overflowed


@settings(max_examples=500)
@given(st.sampled_from([Dialect.CHAT, Dialect.OLLAMA]), PIECES)
def test_bytes_pass_in_order_and_end_at_a_boundary(dialect: Dialect, pieces: list[bytes]) -> None:
    hold, passed, came = EventHold(dialect), b"", b""
    for piece in pieces:
        passed += hold.feed(piece)
        came += piece
        assert passed + hold.rest() == came
        assert at_boundary(passed, dialect)


@settings(max_examples=60)
@given(
    st.sampled_from([Dialect.CHAT, Dialect.OLLAMA, Dialect.PLAIN]),
    st.lists(
        st.sampled_from(
            [b"a" * (HOLD_MAX_BYTES // 2), b"a" * (HOLD_MAX_BYTES + 1), b"\n", b"\n\n", b"\r", b": c", b"x"]
        ),
        max_size=12,
    ),
)
def test_long_events_pass_in_order_and_are_never_collected(dialect: Dialect, pieces: list[bytes]) -> None:
    hold, passed, came = EventHold(dialect), bytearray(), bytearray()
    for piece in pieces:
        passed += hold.feed(piece)
        came += piece
        assert passed + hold.rest() == came
        assert len(hold.rest()) <= HOLD_MAX_BYTES
        assert hold.overflowed or dialect is Dialect.PLAIN or at_boundary(bytes(passed), dialect)


@given(st.sampled_from(Dialect), st.lists(st.binary(max_size=20), max_size=20))
def test_any_bytes_pass_in_order(dialect: Dialect, pieces: list[bytes]) -> None:
    hold = EventHold(dialect)
    passed = b"".join(hold.feed(piece) for piece in pieces)
    assert passed + hold.rest() == b"".join(pieces)


def test_a_long_rest_behind_a_boundary_is_not_held_either() -> None:
    hold = EventHold(Dialect.CHAT)
    came = b"data: a\n\ndata: " + b"x" * (HOLD_MAX_BYTES + 1)
    assert hold.feed(came) == came
    assert hold.overflowed
    assert hold.feed(b"y\n\ndata: b") == b"y\n\n"
    assert hold.rest() == b"data: b"


def test_sixteen_times_the_comments_take_about_sixteen_times_the_work() -> None:
    few, many = (min(_cpu_s(b":\n" * count + b"data: x") for _ in range(3)) for count in (1 << 15, 1 << 19))
    assert many < 64 * few  # 256 where each comment is looked for up to the end of all


def _cpu_s(data: bytes) -> float:
    hold = EventHold(Dialect.CHAT)
    began_s = time.process_time()
    hold.feed(data)
    return time.process_time() - began_s

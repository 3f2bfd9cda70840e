"""Heads of answers, cut anywhere: what is read from them, and what is refused."""

import gc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.protocol.answer_head import MAX_HEAD_BYTES, AnswerHead, Framing, HeadBroken

OK = b"HTTP/1.1 200 OK\r\n"
LENGTH = b"Content-Length: 5\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
CUTS = st.lists(st.integers(0, 200), max_size=8)


def read(head: bytes, *, bodiless: bool = False) -> AnswerHead:
    found = AnswerHead(bodiless=bodiless)
    assert found.feed(head + b"\r\n") == b""
    return found


def fed(data: bytes, cuts: list[int]) -> tuple[object, ...]:
    """All that is known of a head that comes in these pieces, or that it is refused."""
    head, edges = AnswerHead(bodiless=False), [0, *sorted(each for each in cuts if each < len(data)), len(data)]
    for begin, end in pairwise(edges):
        try:
            rest = head.feed(data[begin:end])
        except HeadBroken:
            return ("refused",)
        if rest is not None:
            return head.status, head.fields, head.framing, head.length, head.kept, rest + data[end:]
    return ("not whole",)


def test_fields_are_given_as_they_came_without_the_white_space_around_them() -> None:
    head = read(OK + b"X-Odd:  a \t\r\nx-Odd: b\r\nEmpty:\r\nHigh: \xe9\r\n")
    assert head.fields == [(b"X-Odd", b"a"), (b"x-Odd", b"b"), (b"Empty", b""), (b"High", b"\xe9")]
    assert head.status == 200


def test_what_comes_behind_the_head_is_given_back() -> None:
    assert AnswerHead(bodiless=False).feed(OK + LENGTH + b"\r\nhello") == b"hello"


@pytest.mark.parametrize(
    ("fields", "framing", "length", "kept"),
    [
        (LENGTH, Framing.LENGTH, 5, True),
        (b"CONTENT-LENGTH:  0 \r\n", Framing.LENGTH, 0, True),
        (CHUNKED, Framing.CHUNKED, None, True),
        (b"transfer-encoding: Chunked \r\n", Framing.CHUNKED, None, True),
        (b"", Framing.CLOSE, None, False),
        (LENGTH + b"Connection: close\r\n", Framing.LENGTH, 5, False),
        (b"connection: X, CLOSE\r\n" + CHUNKED, Framing.CHUNKED, None, False),
        (LENGTH + b"Connection: keep-alive\r\n", Framing.LENGTH, 5, True),
        (LENGTH + b"Connection: close\r\nConnection: keep-alive\r\n", Framing.LENGTH, 5, False),
        (LENGTH + b"Connection: keep-alive\r\nConnection: close\r\n", Framing.LENGTH, 5, False),
    ],
)
def test_framing_and_whether_the_connection_is_kept(
    fields: bytes, framing: Framing, length: int | None, kept: bool
) -> None:
    head = read(OK + fields)
    assert (head.framing, head.length, head.kept) == (framing, length, kept)


@pytest.mark.parametrize("fields", [LENGTH, LENGTH + b"Connection: keep-alive\r\n", CHUNKED])
def test_connection_is_not_kept_behind_an_answer_in_http_1_0(fields: bytes) -> None:
    assert not read(b"HTTP/1.0 200 OK\r\n" + fields).kept


@pytest.mark.parametrize("fields", [LENGTH, CHUNKED, b""])
@pytest.mark.parametrize(("status", "bodiless"), [(200, True), (204, False), (304, False), (103, False)])
def test_answers_that_have_no_body_are_kept_behind_whatever_their_fields_say(
    fields: bytes, status: int, bodiless: bool
) -> None:
    head = read(b"HTTP/1.1 %d Oh\r\n" % status + fields, bodiless=bodiless)
    assert (head.framing, head.length, head.kept) == (Framing.NONE, None, True)


REFUSED = [
    *(b"", b"\x00\x01\x02\r\n", b"SSH-2.0-OpenSSH\r\n", b"\r\n" + OK, b"HTTP/1.1 20 OK\r\n", b"HTTP/1.1 2000 OK\r\n"),
    *(
        b"HTTP/2.0 200 OK\r\n",
        b"HTTP/1.2 200 OK\r\n",
        b"HTTP/1.1  200 OK\r\n",
        b"http/1.1 200 OK\r\n",
        b"HTTP/0.9 200 OK\r\n",
    ),
    *(OK + LENGTH + LENGTH, OK + LENGTH + CHUNKED, OK + CHUNKED + LENGTH, OK + CHUNKED + CHUNKED),
    *(OK + b"Content-Length:%b\r\n" % length for length in (b"", b"+5", b"-5", b"5 5", b"0x5", b"5,5", b"9" * 30)),
    *(
        OK + b"Transfer-Encoding: %b\r\n" % coding
        for coding in (b"gzip", b"gzip, chunked", b"chunked, gzip", b"identity")
    ),
    *(OK + b"X: a\r\n b\r\n", OK + b"X : a\r\n", OK + b"X: a\x00b\r\n", OK + b"no colon\r\n", OK + b": a\r\n"),
    *(OK + b"%b: chunked\x7f\r\n" % name for name in (b"Transfer-Encoding", b"connection", b"Content-length ")),
    *(OK + b"X\x7f: a\x00\r\n", OK + b"X\x7f: a\r\nY : b\r\n", OK + b"X: \x7f\r\n b\r\n"),
    *(OK + b"X: a\nY: b\r\n", OK + b"X: a\rb\r\n", OK + b" X: a\r\n", b"HTTP/1.1 200 OK\nX: a\r\n"),
]


@pytest.mark.parametrize("head", REFUSED)
@pytest.mark.parametrize("bytewise", [False, True])
def test_what_is_no_head_is_refused(head: bytes, bytewise: bool) -> None:
    head += b"\r\n"
    assert fed(head, list(range(len(head))) if bytewise else []) == ("refused",)


@pytest.mark.parametrize("cuts", [[], [20], list(range(60))])
@pytest.mark.parametrize("control", [b"\x7f", b"\x01", b"\x1f"])
def test_control_character_costs_the_field_and_not_the_answer(control: bytes, cuts: list[int]) -> None:
    head = OK + b"x-odd: a" + control + b"b\r\n" + LENGTH + b"x-plain: yes\r\n\r\n"
    assert fed(head, cuts)[:4] == (200, [(b"Content-Length", b"5"), (b"x-plain", b"yes")], Framing.LENGTH, 5)


@pytest.mark.parametrize("cuts", [[], [20], list(range(60))])
def test_switch_to_another_protocol_is_a_head_like_others(cuts: list[int]) -> None:
    head = b"HTTP/1.1 101 Oh\r\nUpgrade: a\r\nConnection: upgrade\r\n\r\n"
    assert fed(head, cuts)[0] == 101


@pytest.mark.parametrize("begun", [b"SSH", b"HTTP/1.1 200 OK\r\nX : a", b"HTTP/1.1 2x", b"\r\n"])
def test_what_cannot_become_a_head_is_refused_before_its_end(begun: bytes) -> None:
    assert fed(begun, []) == ("refused",)


@pytest.mark.parametrize("step", [10**9, 1000])
@pytest.mark.parametrize("ends", [True, False])
def test_head_is_read_up_to_a_limit(step: int, ends: bool) -> None:
    data = OK + b"X: " + b"a" * MAX_HEAD_BYTES + b"\r\n\r\n" * ends
    assert fed(data, list(range(0, len(data), step))) == ("refused",)


@given(
    st.sampled_from([b"HTTP/1.1 200 OK", b"HTTP/1.0 404", b"HTTP/1.1 204 No", b"HTTP/2 200", b"HTTP/1.1"]),
    st.lists(
        st.sampled_from([b"a: b", b"Content-Length: 3", b"Connection: close", b"Transfer-Encoding: chunked", b"X:"])
    ),
    st.binary(max_size=9),
    CUTS,
)
def test_head_means_the_same_however_it_is_cut(line: bytes, fields: list[bytes], rest: bytes, cuts: list[int]) -> None:
    data = b"\r\n".join([line, *fields, b"", b""]) + rest
    assert fed(data, cuts) == fed(data, [])


@given(st.binary(max_size=60), CUTS)
def test_anything_means_the_same_however_it_is_cut(strange: bytes, cuts: list[int]) -> None:
    data = OK + strange + b"\r\n\r\n"
    assert fed(data, cuts) == fed(data, [])


@pytest.mark.parametrize("data", [OK + b"\r\n", OK + b"X : a\r\n\r\n"])
@pytest.mark.parametrize("bytewise", [False, True])
def test_head_that_is_read_keeps_nothing_alive(data: bytes, bytewise: bool) -> None:
    """A parser and the object that it tells would, until the collector comes by."""
    gc.collect()
    gc.disable()
    try:
        fed(data, list(range(len(data))) if bytewise else [])
        assert not [each for each in gc.get_objects() if issubclass(type(each), AnswerHead)]
    finally:
        gc.enable()

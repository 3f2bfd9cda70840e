"""Bodies in chunks, cut anywhere: the payload is the sender's, and what is not strictly a chunk is refused."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.protocol.chunks import (
    MAX_DIGITS,
    MAX_LINE_BYTES,
    MAX_REMEMBERED_BYTES,
    MAX_SIZE_LINES,
    MAX_TRAILER_BYTES,
    SIZE_LINES,
    Chunks,
)

PIECES = st.lists(st.binary(min_size=1, max_size=40), max_size=8)
CUTS = st.lists(st.integers(0, 400), max_size=12)
SIZES = st.sampled_from(["%x", "%X", "%04x", "00%x"])
EXTENSIONS = st.sampled_from([b"", b"", b"", b";a", b";a=b", b';a="; b"', b"; a = b\t"])
TRAILERS = st.sampled_from([b"", b"", b"X-A: b\r\n", b"A:\r\nB: \xff\r\n"])


def chunk(payload: bytes, form: str = "%x", extension: bytes = b"") -> bytes:
    return (form % len(payload)).encode() + extension + b"\r\n" + payload + b"\r\n"


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(each for each in cuts if each < len(data)), len(data)]
    return [data[begin:end] for begin, end in pairwise(edges) if begin < end]


def decode(reads: list[bytes]) -> tuple[Chunks, bytes]:
    chunks = Chunks()
    return chunks, b"".join(chunks.feed(read)[1] for read in reads)


@st.composite
def bodies(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """The payload, and one of its ways to be written."""
    pieces = draw(PIECES)
    written = b"".join(chunk(piece, draw(SIZES), draw(EXTENSIONS)) for piece in pieces)
    return b"".join(pieces), written + draw(st.sampled_from([b"0", b"000", b"0;a=b"])) + b"\r\n" + draw(
        TRAILERS
    ) + b"\r\n"


@given(bodies(), CUTS)
def test_payload_is_the_same_however_it_is_chunked_and_cut(body: tuple[bytes, bytes], cuts: list[int]) -> None:
    chunks, payload = decode(cut(body[1], cuts))
    assert (payload, chunks.over, chunks.fault, chunks.surplus) == (body[0], True, None, False)


@given(bodies(), CUTS)
def test_framed_bytes_and_the_rest_framed_anew_are_the_same_payload(body: tuple[bytes, bytes], cuts: list[int]) -> None:
    chunks, passed_on = Chunks(), b""
    for read in cut(body[1], cuts):
        framed, payload = chunks.feed(read)
        assert decode([framed])[1] == (payload if framed else b"")
        passed_on += framed or (chunk(payload) if payload else b"")
    again, payload = decode([passed_on + b"0\r\n\r\n"])
    assert (payload, again.over, again.fault) == (body[0], True, None)


@given(bodies(), st.integers(0, 400))
def test_body_is_not_over_before_its_last_byte(body: tuple[bytes, bytes], size: int) -> None:
    assert decode([body[1][: min(size, len(body[1]) - 1)]])[0].over is False


@given(bodies(), CUTS, st.binary(min_size=1, max_size=9))
def test_bytes_behind_the_end_are_noticed_and_are_no_payload(
    body: tuple[bytes, bytes], cuts: list[int], behind: bytes
) -> None:
    chunks, payload = decode(cut(body[1] + behind, cuts))
    assert (payload, chunks.over, chunks.fault, chunks.surplus) == (body[0], True, None, True)


@given(st.lists(st.binary(max_size=30), max_size=6), CUTS)
def test_any_bytes_mean_the_same_however_they_are_cut(strange: list[bytes], cuts: list[int]) -> None:
    data = b"5\r\nhello\r\n" + b"\r\n".join(strange)
    whole, payload = decode([data])
    pieces, again = decode(cut(data, cuts))
    assert (whole.over, whole.fault is None, payload) == (pieces.over, pieces.fault is None, again)


@pytest.mark.parametrize("count", [1, 2, 9])
def test_read_of_whole_chunks_is_framed_as_it_is(count: int) -> None:
    data = chunk(b"word ") * count
    assert Chunks().feed(data) == (data, b"word " * count)


def test_whole_chunk_is_told_by_its_length_and_a_length_that_no_chunk_has_by_none() -> None:
    lines = {len(chunk(bytes(size))): b"%x\r\n" % size for size in (*range(1, 70_000), 0xFFFFF, 0x100000)}
    assert [each for each, line in lines.items() if SIZE_LINES[each] != line] == []
    others = set(range(70_000)) - set(lines)
    assert {0, 5, 21, 262} < others
    assert [each for each in others if len(SIZE_LINES[each]) <= each] == []


def test_lengths_of_chunks_are_remembered_up_to_a_limit() -> None:
    for size in range(3 * MAX_SIZE_LINES):
        assert SIZE_LINES[size]
    assert SIZE_LINES[MAX_REMEMBERED_BYTES + 1] == b"%x\r\n" % (MAX_REMEMBERED_BYTES + 1 - 8)
    assert 0 < len(SIZE_LINES) <= MAX_SIZE_LINES
    assert MAX_REMEMBERED_BYTES + 1 not in SIZE_LINES


@pytest.mark.parametrize("data", [b"4\r\nwordXX", b"4\r\nword\r\r", b"4\r\nword\n\n", b"5\r\nword\r\n\r\n"])
def test_chunk_that_does_not_end_where_its_size_says_is_refused_whole_as_it_comes(data: bytes) -> None:
    chunks = Chunks()
    chunks.feed(data)
    assert chunks.fault == "a chunk does not end where its size says"


def test_last_chunk_is_framed_also_where_the_end_comes_with_it() -> None:
    chunks = Chunks()
    assert chunks.feed(chunk(b"word") + b"0\r\n\r\n") == (chunk(b"word"), b"word")
    assert chunks.over


def test_whole_chunks_are_framed_where_only_the_size_of_the_next_comes_with_them() -> None:
    chunks = Chunks()
    assert chunks.feed(chunk(b"word") + b"4\r") == (chunk(b"word"), b"word")
    assert chunks.feed(b"\nnext\r\n") == (b"", b"next")
    assert chunks.feed(chunk(b"word")) == (chunk(b"word"), b"word")


@pytest.mark.parametrize("data", [chunk(b"word", extension=b";a"), chunk(b"word") + b"4\r\nwo", b"0\r\n\r\n"])
def test_what_is_not_whole_chunks_alone_is_not_framed(data: bytes) -> None:
    assert Chunks().feed(data)[0] == b""


BAD_SIZES = [
    *(b"", b"+1", b"-1", b" 1", b"1 ", b"\t1", b"1\t", b"0x1", b"0X1", b"1_0", b"1.0", b"1,0", b"g", b"\xb2", b"\x001"),
    *(b"1\r", b"1\n", b"\n1", b"1\n1", b"0\r", b"+0", b"-0", b"0x0", b"0_0", b" 0", b"0 ", b"zz", b"no chunk size"),
    *(b";a", b"1 ;a", b"1;a\rb", b"1;a\nb", b"1;\x00", b"1;\xff", b"1;" + b"a" * MAX_LINE_BYTES),
    *(b"0" * MAX_DIGITS + b"1", b"1" * (MAX_DIGITS + 1), b"0" * (MAX_DIGITS + 1)),
]


@pytest.mark.parametrize("line", BAD_SIZES)
@pytest.mark.parametrize(
    "before", [b"", chunk(b"good"), chunk(b"good") * 2 + b"4\r\nbad?\r\n"], ids=["first", "2nd", "4th"]
)
@pytest.mark.parametrize("bytewise", [False, True])
def test_size_that_is_not_hexadecimal_digits_alone_is_refused(line: bytes, before: bytes, bytewise: bool) -> None:
    data = before + line + b"\r\nx\r\n0\r\n\r\n"
    chunks, payload = decode([data[at : at + 1] for at in range(len(data))] if bytewise else [data])
    assert (chunks.over, chunks.fault is not None) == (True, True)
    assert payload == before.replace(b"4\r\n", b"").replace(b"\r\n", b"")


@pytest.mark.parametrize("closing", [b"x\r\n", b"\n", b"\r\r\n", b"\rx", b"0\r\n\r\n", b"\n\r\n", b"\n\n"])
def test_chunk_that_does_not_end_where_its_size_says_is_refused(closing: bytes) -> None:
    chunks, payload = decode([b"4\r\nword" + closing])
    assert (payload, chunks.over, chunks.fault is not None) == (b"word", True, True)


@pytest.mark.parametrize("size_line", [b"4\nword\r\n", b"4\rword\r\n", b"4word\r\n"])
def test_size_line_ends_with_both_characters(size_line: bytes) -> None:
    assert decode([size_line + b"0\r\n\r\n"])[0].fault is not None


@pytest.mark.parametrize(
    "trailer",
    [
        b"no colon\r\n",
        b": nameless\r\n",
        b" a: b\r\n",
        b"a : b\r\n",
        b"a: b\x00\r\n",
        b"a: b\nc: d\r\n",
        b"a: b\rc\r\n",
    ],
)
def test_trailer_that_is_no_list_of_fields_is_refused(trailer: bytes) -> None:
    assert decode([b"0\r\n" + trailer + b"\r\n"])[0].fault is not None


@pytest.mark.parametrize(
    "field", [b"a: " + b"b" * MAX_TRAILER_BYTES + b"\r\n", b"a: b\r\n" * (MAX_TRAILER_BYTES // 6 + 1)]
)
def test_trailer_is_read_up_to_a_limit(field: bytes) -> None:
    assert decode([b"0\r\n" + field + b"\r\n"])[0].fault is not None
    assert decode([b"0\r\n", *(field[at : at + 1000] for at in range(0, len(field), 1000))])[0].fault is not None


@pytest.mark.parametrize("begun", [b"zz", b"+", b"1" * (MAX_DIGITS + 1), b"1;" + b"a" * (MAX_LINE_BYTES + 2)])
def test_line_that_cannot_become_a_size_is_refused_before_its_end(begun: bytes) -> None:
    assert decode([begun])[0].fault is not None


def test_largest_size_is_waited_for_and_costs_nothing() -> None:
    chunks = Chunks()
    assert chunks.feed(b"f" * MAX_DIGITS + b"\r\nword") == (b"", b"word")
    assert not chunks.over


def test_nothing_is_read_once_it_is_over() -> None:
    chunks = decode([b"0\r\n\r\n"])[0]
    assert chunks.feed(chunk(b"word")) == (b"", b"")
    assert chunks.surplus


def test_read_that_looks_like_a_whole_chunk_belongs_to_the_size_before_it() -> None:
    chunks = Chunks()
    assert chunks.feed(b"1") == (b"", b"")
    assert chunks.feed(b"4\r\nabcd\r\n") == (b"", b"abcd\r\n")


def test_nothing_is_read_behind_a_fault() -> None:
    chunks = decode([b"zz\r\n"])[0]
    assert chunks.feed(chunk(b"word")) == (b"", b"")

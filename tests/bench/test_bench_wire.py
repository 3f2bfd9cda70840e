"""What the load client makes of a chunked body, wherever it is cut."""

import pytest
from bench import messages
from bench.wire import Broken, Chunks
from hypothesis import given
from hypothesis import strategies as st

PAYLOADS = st.lists(st.binary(min_size=1, max_size=40), max_size=8)
SIZES = st.sampled_from((b"%x\r\n", b"%X\r\n", b"%08x\r\n", b"%x;name=value\r\n"))


def framed(payloads: list[bytes], size: bytes) -> bytes:
    return b"".join(size % len(each) + each + b"\r\n" for each in payloads) + b"0\r\n\r\n"


@given(payloads=PAYLOADS, size=SIZES, cuts=st.lists(st.integers(1, 30), min_size=1))
def test_the_payload_is_counted_whole_when_reads_are_cut_anywhere(
    payloads: list[bytes], size: bytes, cuts: list[int]
) -> None:
    body, chunks, at = framed(payloads, size), Chunks(), 0
    for cut in cuts * len(body):
        chunks.feed(body[at : at + cut])
        at += cut

    assert chunks.ended
    assert chunks.payload_bytes == sum(map(len, payloads))


def test_a_body_has_not_ended_when_its_last_chunk_is_missing() -> None:
    chunks = Chunks()
    chunks.feed(framed([b"event"], b"%x\r\n")[:-5])

    assert not chunks.ended
    assert chunks.between


def test_a_body_is_refused_when_it_is_not_chunked() -> None:
    with pytest.raises(Broken):
        Chunks().feed(b"data: {}\n\n")


@pytest.mark.parametrize("shape", ["spread", "flood"])
def test_the_payload_of_a_whole_stream_is_as_long_as_the_engine_says(shape: str) -> None:
    event = messages.FLOOD_BLOCK if shape == "flood" else messages.stamped(12345)
    chunks = Chunks()
    chunks.feed(messages.STREAM_BEGIN.partition(b"\r\n\r\n")[2] + event * 3 + messages.STREAM_TAIL)

    assert chunks.ended
    assert chunks.payload_bytes == messages.payload_bytes(messages.FRAME_EVENTS + 3, shape)


@pytest.mark.parametrize(
    ("bytes_of", "events"),
    [
        (messages.STREAM_BEGIN, 2),
        (messages.stamped(2**60), 1),
        (messages.FLOOD_BLOCK, 1),
        (messages.STREAM_TAIL, 2),
        (messages.PLAIN_ANSWER, 1),
    ],
)
def test_the_mark_stands_once_in_each_event(bytes_of: bytes, events: int) -> None:
    assert bytes_of.count(messages.MARK) == events

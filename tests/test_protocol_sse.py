"""The scanner sees the same facts in a stream however it is cut, and nothing it meets makes it fail."""

from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.model import Dialect, Usage
from proxy.protocol.quiet import telling_search
from proxy.protocol.sse import MAX_LINE_BYTES, Scanner, StreamError

HEAD = b'data: {"id":"963b","object":"chat.completion.chunk","created":1795971306,"model":"m","choices":[{"index":0,'
TAIL = b',"logprobs":null,"finish_reason":null,"matched_stop":null}]}\n\n'
ROLE = HEAD + b'"delta":{"reasoning_content":null,"role":"assistant","content":""}' + TAIL
TEXT = HEAD + '"delta":{"reasoning_content":null,"content":"你好 👩‍🚀 é \\"usage\\":{}"}'.encode() + TAIL
FINISH = (
    HEAD + b'"delta":{"reasoning_content":null},"logprobs":null,"finish_reason":"length","matched_stop":null}]}\n\n'
)
USAGE = (
    b'data: {"id":"963b","object":"chat.completion.chunk","created":1,"model":"m","choices":[],"usage":'
    b'{"prompt_tokens":14,"total_tokens":20,"completion_tokens":6,"prompt_tokens_details":null,"reasoning_tokens":0}}\n\n'
)
DONE = b"data: [DONE]\n\n"
REFUSED = (
    b'data: {"error":{"object":"error","message":"The request queue is full.","type":"SERVICE_UNAVAILABLE",'
    b'"param":null,"code":503}}\n\n'
)
CHAT = ROLE + TEXT * 3 + FINISH + USAGE + DONE
MESSAGES = (
    b'event: message_start\ndata: {"type":"message_start","message":{"usage":{"input_tokens":14}}}\n\n'
    b'event: content_block_start\ndata: {"type":"content_block_start","index":0,"content_block":{"type":"text"}}\n\n'
    b'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{"type":"text_delta","text":"a"}}\n\n'
    b'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{"type":"text_delta","text":"b"}}\n\n'
    b'event: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\n'
    b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"},'
    b'"usage":{"output_tokens":6}}\n\nevent: message_stop\ndata: {"type":"message_stop"}\n\n'
)
RESPONSES = (
    b'event: response.created\ndata: {"type":"response.created","sequence_number":0,"response":{"error":null}}\n\n'
    b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","item_id":"i","delta":"a"}\n\n'
    b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","item_id":"i","delta":"b"}\n\n'
    b'event: response.completed\ndata: {"type":"response.completed","sequence_number":3,"response":'
    b'{"status":"completed","error":null,"usage":{"input_tokens":14,"output_tokens":6}}}\n\n'
)
OLLAMA = (
    b'{"model":"m","message":{"role":"assistant","content":"a"},"done":false}\n'
    b'{"model":"m","message":{"role":"assistant","content":"b"},"done":false}\n'
    b'{"model":"m","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop",'
    b'"prompt_eval_count":14,"eval_count":6}\n'
)
GENERATE = (
    b'data: {"text":"a","output_ids":[1],"meta_info":{"id":"x","finish_reason":null,"prompt_tokens":14,'
    b'"completion_tokens":1,"cached_tokens":0}}\n\n'
    b'data: {"text":"ab","output_ids":[2],"meta_info":{"id":"x","finish_reason":{"type":"length","length":6},'
    b'"prompt_tokens":14,"completion_tokens":6,"cached_tokens":0}}\n\n' + DONE
)
STREAMS = {
    Dialect.CHAT: (CHAT, 7),
    Dialect.MESSAGES: (MESSAGES, 7),
    Dialect.RESPONSES: (RESPONSES, 4),
    Dialect.OLLAMA: (OLLAMA, 3),
    Dialect.GENERATE: (GENERATE, 3),
}
ENDINGS = st.sampled_from([b"\n", b"\r\n", b"\r"])


def scan(parts: Iterable[bytes], dialect: Dialect = Dialect.CHAT) -> Scanner:
    scanner = Scanner(dialect)
    for part in parts:
        scanner.feed(part)
    return scanner


def cut(data: bytes, at: Iterable[int]) -> list[bytes]:
    places = [0, *sorted({place % (len(data) + 1) for place in at}), len(data)]
    return [data[start:end] for start, end in pairwise(places)]


def bytewise(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


CUTS = st.lists(st.integers(0, 10_000), max_size=30)


@pytest.mark.parametrize("dialect", STREAMS)
@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize("spaced", [True, False], ids=["spaced", "unspaced"])
def test_a_whole_stream_is_read_byte_by_byte_in_every_variant(dialect: Dialect, ending: bytes, spaced: bool) -> None:
    stream, events = STREAMS[dialect]
    stream = stream if spaced else stream.replace(b"data: ", b"data:").replace(b"event: ", b"event:")
    for parts in (bytewise(stream.replace(b"\n", ending)), [stream.replace(b"\n", ending)]):
        scanner = scan(parts, dialect)
        assert (scanner.first_content, scanner.ended, scanner.finished, scanner.aborted) == (True, True, True, False)
        assert (scanner.usage, scanner.events, scanner.error) == (Usage(14, 6), events, None)
        assert scanner.at_boundary
        assert not scanner.gave_up


@given(st.sampled_from(list(STREAMS)), ENDINGS, CUTS)
def test_the_facts_do_not_depend_on_the_cuts(dialect: Dialect, ending: bytes, cuts: list[int]) -> None:
    stream, events = STREAMS[dialect]
    scanner = scan(cut(stream.replace(b"\n", ending), cuts), dialect)
    assert (scanner.usage, scanner.events, scanner.ended) == (Usage(14, 6), events, True)


def test_first_content_comes_with_the_first_text_and_not_with_the_role() -> None:
    scanner = scan([ROLE])
    assert (scanner.events, scanner.first_content) == (1, False)
    scanner.feed(TEXT[:-1])
    assert not scanner.first_content
    assert not scanner.at_boundary
    scanner.feed(TEXT[-1:])
    assert scanner.first_content
    assert scanner.at_boundary


def test_a_finish_reason_finishes_and_the_mark_ends() -> None:
    scanner = scan([ROLE + TEXT, FINISH])
    assert (scanner.finished, scanner.ended) == (True, False)
    scanner.feed(DONE)
    assert scanner.ended


def test_the_mark_counts_before_its_event_is_closed() -> None:
    assert scan([ROLE, b"data: [DONE]\n"]).ended
    scanner = scan([ROLE, b"data: [DONE]"])
    assert not scanner.ended
    scanner.close()
    assert (scanner.ended, scanner.finished, scanner.at_boundary) == (True, True, True)


def test_a_refusal_in_the_first_event_is_an_error_with_its_status() -> None:
    scanner = scan([REFUSED])
    assert scanner.error == StreamError(503, "SERVICE_UNAVAILABLE", "503")
    assert (scanner.events, scanner.first_content, scanner.ended) == (1, False, False)


def test_an_error_after_content_is_seen() -> None:
    assert scan([ROLE + TEXT + TEXT, REFUSED, DONE]).error is not None


def test_a_named_error_event_is_an_error_whatever_it_holds() -> None:
    assert scan([b"event: error\ndata: no json\n\n"]).error == StreamError()
    assert scan([b"event: error\n\n"]).error is None
    assert scan([b'event: error\ndata: {"type":"error","error":{"type":"api_error"}}\n\n'], Dialect.MESSAGES).error == (
        StreamError(500, "api_error")
    )


def test_an_abort_is_told_apart_from_a_finish() -> None:
    assert scan([ROLE, FINISH.replace(b"length", b"abort")]).aborted
    assert not scan([ROLE, FINISH]).aborted


def test_comments_and_empty_events_are_no_events() -> None:
    scanner = scan([b": keep-alive\n\n", b":\n\n", b"\n\n\n", b"data:\n\n", b"data\n\n", b"id: 7\nretry: 3\n\n"])
    assert (scanner.events, scanner.at_boundary) == (0, True)
    scanner.feed(b": ping\n")
    assert scanner.at_boundary
    scanner.feed(b"id: 8\n")
    assert not scanner.at_boundary


def test_data_over_several_lines_is_one_event() -> None:
    scanner = scan([b'data: {"choices":[{"delta":{\ndata: "content":"a"}}]}\n\n'])
    assert (scanner.events, scanner.first_content) == (1, True)


def test_a_byte_order_mark_is_passed_over() -> None:
    assert scan(bytewise(b"\xef\xbb\xbf" + TEXT)).first_content


def test_many_whole_events_in_one_piece_are_counted() -> None:
    scanner = scan([ROLE + TEXT, TEXT * 50, TEXT * 2 + b": ping\n\n" + TEXT, b'data: {"x":1}\n\ndata:\n\n' + TEXT])
    assert scanner.events == 2 + 50 + 3 + 2
    scanner = scan([OLLAMA, OLLAMA[: OLLAMA.index(b"\n") + 1] * 3], Dialect.OLLAMA)
    assert scanner.events == 6


def test_carriage_returns_that_end_events_are_seen_among_line_feeds() -> None:
    assert scan([ROLE + TEXT, b'data: {"x":1}\r\rdata: {"x":2}\n\n']).events == 4


@pytest.mark.parametrize(
    ("dialect", "telling", "quiet"),
    [
        (Dialect.CHAT, b'"finish_reason":"stop"', b'"finish_reason":null'),
        (Dialect.CHAT, b'"finish_reason" :null', b"finish_reason"),
        (Dialect.COMPLETIONS, b'"usage":{}', b'"usage":null'),
        (Dialect.CHAT, b'"finish_reason":null,"finish_reason":1', b'"finish_reason":null,"finish_reason":null'),
        (Dialect.CHAT, b'"error":null', b'\\"error\\"'),
        (Dialect.GENERATE, b'"finish_reason":{}', b'"usage":{}'),
        (Dialect.GENERATE, b'"error":1', b'"finish_reason":null'),
        (Dialect.MESSAGES, b'"message_delta"', b'"content_block_delta"'),
        (Dialect.MESSAGES, b'"error"', b'"message"'),
        (Dialect.RESPONSES, b'"response.completed"', b'"response.completed.delta"'),
        (Dialect.RESPONSES, b'"response.failed"', b'"usage":1'),
        (Dialect.RESPONSES, b'"response.incomplete"', b'"response.output_text.delta"'),
        (Dialect.RESPONSES, b'"error"', b'"response_completed"'),
        (Dialect.OLLAMA, b'"done":true', b'"done":false'),
        (Dialect.OLLAMA, b'"error":""', b'"done_reason":1'),
    ],
)
def test_what_tells_something_is_told_apart_from_what_does_not(dialect: Dialect, telling: bytes, quiet: bytes) -> None:
    search = telling_search(dialect)
    for size in (0, 5000):
        assert search(b'{"a":"' + b"b" * size + b'",' + telling + b"}") is not None
        assert search(b'{"a":"' + b"b" * size + b'",' + quiet + b"}") is None


def test_usage_with_spaces_in_the_json_is_read() -> None:
    scanner = scan([ROLE + TEXT, b'data: {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}\n\n'])
    assert scanner.usage == Usage(3, 2)


def test_the_latest_of_continuous_usage_holds() -> None:
    event = b'data: {"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":3,"completion_tokens":%d}}\n\n'
    assert scan([event % count for count in range(1, 9)]).usage == Usage(3, 8)


def test_native_prompts_of_a_batch_are_summed_at_their_ends() -> None:
    last = GENERATE.split(b"\n\n")[1] + b"\n\n"
    assert scan([last, last, DONE], Dialect.GENERATE).usage == Usage(28, 12)


def test_an_endless_line_is_passed_over_in_constant_memory() -> None:
    scanner = scan([ROLE, b'data: {"choices":[{"delta":{"content":"'])
    for _ in range(3):
        scanner.feed(b"a" * MAX_LINE_BYTES)
        assert len(scanner._line) <= MAX_LINE_BYTES
    assert scanner.gave_up
    assert not scanner.at_boundary
    scanner.feed(b'"}}]}\n\n' + TEXT + DONE)
    assert (scanner.events, scanner.first_content, scanner.ended, scanner.at_boundary) == (4, True, True, True)


def test_a_long_line_in_one_piece_and_a_long_event_of_many_lines_are_passed_over() -> None:
    long = b"data: " + b"a" * (MAX_LINE_BYTES // 2) + b"\n"
    scanner = scan([long * 3 + b"\n" + TEXT])
    assert (scanner.gave_up, scanner.events, scanner.first_content) == (True, 2, True)
    scanner = scan([b"data: " + b"a" * MAX_LINE_BYTES + b"\n\n" + TEXT])
    assert (scanner.gave_up, scanner.events) == (True, 2)
    scanner = scan([b": " + b"a" * MAX_LINE_BYTES + b"\n\n" + TEXT])
    assert (scanner.events, scanner.at_boundary) == (1, True)
    scanner = scan([b"a" * (MAX_LINE_BYTES + 1), b"\n" + OLLAMA], Dialect.OLLAMA)
    assert (scanner.gave_up, scanner.events, scanner.ended) == (True, 4, True)


@given(st.sampled_from(Dialect), st.lists(st.binary(max_size=40), max_size=20))
def test_any_bytes_pass_without_raising(dialect: Dialect, parts: list[bytes]) -> None:
    scanner = scan(parts, dialect)
    scanner.close()
    assert scanner.at_boundary


PIECES = st.lists(
    st.sampled_from(
        [
            b"data: ",
            b"data:",
            b"event: error",
            b"\n",
            b"\r",
            b"\r\n",
            b"\n\n",
            b": x",
            b"[DONE]",
            b"{}",
            b'{"error":"x"}',
            b'{"choices":[{"delta":{"content":"a"}}]}',
            b'{"choices":[{"finish_reason":"stop"}]}',
            b'"usage":null',
            b"}",
        ]
    ),
    max_size=40,
)


@settings(max_examples=300)
@given(st.sampled_from([Dialect.CHAT, Dialect.OLLAMA]), PIECES, CUTS)
def test_pieces_of_streams_read_alike_in_any_cuts(dialect: Dialect, pieces: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(pieces)
    public = [name for name in Scanner.__slots__ if not name.startswith("_")]
    seen = {
        tuple(getattr(scanner, name) for name in [*public, "at_boundary"])
        for scanner in (scan(bytewise(stream), dialect), scan(cut(stream, cuts), dialect), scan([stream], dialect))
    }
    assert len(seen) == 1

"""What single events and whole answers say, in each dialect; shapes as real engines send them."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.model import Dialect, Usage
from proxy.protocol.answers import (
    MAX_WORD_CHARS,
    READ_MAX_BYTES,
    EventFacts,
    StreamError,
    read_answer,
    read_event,
    read_usage,
)

CHAT = Dialect.CHAT
NAMES = st.sampled_from(
    [
        "choices",
        "delta",
        "content",
        "finish_reason",
        "usage",
        "error",
        "type",
        "code",
        "status",
        "status_code",
        "meta_info",
        "message",
        "response",
        "done",
        "prompt_tokens",
        "completion_tokens",
        "prompt_tokens_details",
        "cached_tokens",
        "text",
        "object",
        "predictions",
        "content_block",
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=5),
    max_leaves=15,
)


def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish, "matched_stop": None}
    return {"id": "a", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


@pytest.mark.parametrize(
    ("delta", "content"),
    [
        ({"reasoning_content": None, "role": "assistant", "content": ""}, False),
        ({"reasoning_content": None}, False),
        ({"reasoning_content": None, "content": "mhw"}, True),
        ({"reasoning_content": "hm"}, True),
        ({"reasoning": "hm"}, True),
        ({"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": ""}}]}, True),
        ({"tool_calls": []}, False),
        ({"refusal": "no"}, True),
        ({"invented": "x"}, False),
    ],
)
def test_a_chat_delta_is_content_when_something_was_generated(delta: dict[str, Any], content: bool) -> None:
    assert read_event(chunk(delta), Dialect.CHAT) == EventFacts(content=content)


def test_finish_and_usage_of_a_chat_stream_are_read() -> None:
    assert read_event(chunk({"reasoning_content": None}, "length"), Dialect.CHAT).finish == "length"
    assert read_event(chunk({}, "abort"), Dialect.CHAT).finish == "abort"
    usage: dict[str, Any] = {
        "prompt_tokens": 14,
        "total_tokens": 20,
        "completion_tokens": 6,
        "prompt_tokens_details": None,
    }
    assert read_event({"choices": [], "usage": usage}, Dialect.CHAT).usage == Usage(14, 6, 0)
    usage["prompt_tokens_details"] = {"cached_tokens": 12}
    assert read_event({"choices": [], "usage": usage}, Dialect.CHAT).usage == Usage(14, 6, 12)


def test_a_text_completion_is_read() -> None:
    event = {
        "object": "text_completion",
        "choices": [{"index": 0, "text": "9", "finish_reason": "length"}],
        "usage": None,
    }
    assert read_event(event, Dialect.COMPLETIONS) == EventFacts(content=True, finish="length")
    assert read_event({"choices": [{"token_ids": [1]}]}, Dialect.COMPLETIONS).content


def test_a_native_event_is_read() -> None:
    meta = {
        "finish_reason": {"type": "length", "length": 4},
        "prompt_tokens": 3,
        "completion_tokens": 4,
        "cached_tokens": 1,
    }
    event = {"text": "lql999", "output_ids": [8640, 100], "meta_info": meta}
    assert read_event(event, Dialect.GENERATE) == EventFacts(True, "length", False, Usage(3, 4, 1))
    abort = {"type": "abort", "message": "secret", "status_code": 503, "err_type": "SERVICE_UNAVAILABLE"}
    facts = read_event({"text": "", "meta_info": {"finish_reason": abort}}, Dialect.GENERATE)
    assert (facts.finish, facts.error) == ("abort", StreamError(503, "SERVICE_UNAVAILABLE"))


@pytest.mark.parametrize(
    ("event", "facts"),
    [
        ({"type": "message_start", "message": {"usage": {"input_tokens": 9}}}, EventFacts(usage=Usage(9))),
        ({"type": "content_block_start", "content_block": {"type": "text", "text": ""}}, EventFacts()),
        ({"type": "content_block_start", "content_block": {"type": "tool_use", "name": "f"}}, EventFacts(content=True)),
        ({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "a"}}, EventFacts(content=True)),
        (
            {"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": "a"}},
            EventFacts(content=True),
        ),
        (
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}},
            EventFacts(finish="end_turn", usage=Usage(0, 5)),
        ),
        ({"type": "message_stop"}, EventFacts(ended=True)),
        (
            {"type": "error", "error": {"type": "overloaded_error", "message": "x"}},
            EventFacts(error=StreamError(503, "overloaded_error")),
        ),
    ],
)
def test_an_anthropic_event_is_read(event: dict[str, Any], facts: EventFacts) -> None:
    assert read_event(event, Dialect.MESSAGES) == facts


@pytest.mark.parametrize(
    ("event", "facts"),
    [
        ({"type": "response.created", "response": {"status": "in_progress", "error": None}}, EventFacts()),
        ({"type": "response.output_text.delta", "delta": "a"}, EventFacts(content=True)),
        ({"type": "response.reasoning_text.delta", "delta": "a"}, EventFacts(content=True)),
        ({"type": "response.output_text.delta", "delta": ""}, EventFacts()),
        (
            {
                "type": "response.completed",
                "response": {
                    "status": "completed",
                    "usage": {"input_tokens": 3, "output_tokens": 4, "input_tokens_details": {"cached_tokens": 2}},
                },
            },
            EventFacts(finish="completed", ended=True, usage=Usage(3, 4, 2)),
        ),
        (
            {"type": "response.failed", "response": {"status": "failed", "error": {"code": "server_error"}}},
            EventFacts(finish="failed", ended=True, error=StreamError(500, None, "server_error")),
        ),
        (
            {"type": "error", "code": "rate_limit_exceeded", "message": "x", "sequence_number": 1},
            EventFacts(error=StreamError(429, "error", "rate_limit_exceeded")),
        ),
    ],
)
def test_a_responses_event_is_read(event: dict[str, Any], facts: EventFacts) -> None:
    assert read_event(event, Dialect.RESPONSES) == facts


@pytest.mark.parametrize(
    ("event", "facts"),
    [
        ({"message": {"role": "assistant", "content": ""}, "done": False}, EventFacts()),
        ({"message": {"role": "assistant", "content": "a"}, "done": False}, EventFacts(content=True)),
        ({"response": "a", "done": False}, EventFacts(content=True)),
        (
            {"response": "", "done": True, "done_reason": "stop", "prompt_eval_count": 3, "eval_count": 4},
            EventFacts(finish="stop", ended=True, usage=Usage(3, 4)),
        ),
        ({"error": "the text quotes the prompt"}, EventFacts(error=StreamError())),
    ],
)
def test_an_ollama_line_is_read(event: dict[str, Any], facts: EventFacts) -> None:
    assert read_event(event, Dialect.OLLAMA) == facts


@pytest.mark.parametrize(
    ("event", "error"),
    [
        (
            {"error": {"object": "error", "message": "x", "type": "SERVICE_UNAVAILABLE", "param": None, "code": 503}},
            StreamError(503, "SERVICE_UNAVAILABLE", "503"),
        ),
        (
            {"object": "error", "message": "x", "type": "BadRequestError", "code": 400},
            StreamError(400, "BadRequestError", "400"),
        ),
        ({"error": {"message": "x", "type": "503", "code": "503"}}, StreamError(503, "503", "503")),
        ({"error": {"message": "x"}}, StreamError()),
        ({"error": "Unauthorized"}, StreamError()),
        ({"error": {"type": ["x"], "code": {"a": 1}}}, StreamError()),
        ({"error": {"type": "a\nb", "code": 99}}, StreamError(None, None, "99")),
        ({"error": None}, None),
        ({"error": {}}, None),
    ],
)
def test_an_error_is_told_by_status_and_words_and_never_by_its_message(
    event: dict[str, Any], error: StreamError | None
) -> None:
    assert read_event(event, Dialect.CHAT).error == error


def test_a_long_word_is_clipped() -> None:
    error = read_event({"error": {"type": "x" * 500}}, Dialect.CHAT).error
    assert error == StreamError(None, "x" * MAX_WORD_CHARS)


@pytest.mark.parametrize(
    ("dialect", "answer", "usage"),
    [
        (Dialect.CHAT, {"choices": [], "usage": {"prompt_tokens": 14, "completion_tokens": 6}}, Usage(14, 6)),
        (Dialect.PLAIN, {"data": [], "usage": {"prompt_tokens": 7, "total_tokens": 7}}, Usage(7)),
        (Dialect.MESSAGES, {"type": "message", "usage": {"input_tokens": 5, "output_tokens": 2}}, Usage(5, 2)),
        (Dialect.RESPONSES, {"object": "response", "usage": {"input_tokens": 5, "output_tokens": 2}}, Usage(5, 2)),
        (Dialect.OLLAMA, {"done": True, "prompt_eval_count": 5, "eval_count": 2}, Usage(5, 2)),
        (Dialect.GENERATE, {"text": "a", "meta_info": {"prompt_tokens": 3, "completion_tokens": 4}}, Usage(3, 4)),
        (
            Dialect.GENERATE,
            [{"meta_info": {"prompt_tokens": 3, "completion_tokens": 4, "cached_tokens": 1}}] * 2,
            Usage(6, 8, 2),
        ),
        (
            Dialect.PLAIN,
            {"predictions": [{"meta_info": {"prompt_tokens": 3, "completion_tokens": 4}}] * 3},
            Usage(9, 12),
        ),
        (Dialect.CHAT, {"usage": {"prompt_tokens": True, "completion_tokens": -1}}, Usage()),
        (Dialect.CHAT, {"error": {"message": "x"}}, Usage()),
    ],
)
def test_the_usage_of_a_whole_answer_is_read(dialect: Dialect, answer: object, usage: Usage) -> None:
    assert read_answer(orjson.dumps(answer), dialect) == usage


MARK = ',"usage":{"prompt_tokens":9}'
COUNTS = st.dictionaries(
    st.sampled_from(["prompt_tokens", "completion_tokens", "input_tokens", "output_tokens", "cached_tokens", "usage"]),
    st.integers(-1, 9) | st.none() | st.just({"prompt_tokens": 7}),
)
MEMBERS = st.tuples(
    st.sampled_from(["usage", "usage", "choices", "metadata", 'a"usage', "\\", MARK, "predictions"]),
    st.deferred(lambda: VALUES),
)
OBJECTS = st.lists(MEMBERS, max_size=5)  # a name may come twice
TEXTS = st.sampled_from([MARK, MARK + "}", "\\", '"', '",', "\\" + MARK, "x,", ',"usage":{'])
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | COUNTS | TEXTS, lambda inner: st.lists(inner, max_size=3) | OBJECTS.map(tuple), max_leaves=8
)


def written(value: Any, separators: tuple[str, str]) -> str:
    """A value as JSON; a tuple of members is an object."""
    comma, colon = separators
    if isinstance(value, tuple):
        return "{" + comma.join(json.dumps(name) + colon + written(each, separators) for name, each in value) + "}"
    if isinstance(value, list):
        return "[" + comma.join(written(each, separators) for each in value) + "]"
    return json.dumps(value, separators=separators)


@given(
    OBJECTS.map(tuple) | st.lists(OBJECTS.map(tuple), max_size=2),
    st.sampled_from([(",", ":"), (", ", ": "), (",", " :"), (",\n", ":")]),
    st.sampled_from([Dialect.CHAT, Dialect.COMPLETIONS]),
)
@example(
    (("usage", {"prompt_tokens": 1}), ("choices", [(("a", 1), ("usage", {"prompt_tokens": 2}))])), (",", ":"), CHAT
)
@example((("a", 1), ("usage", {"prompt_tokens": 1}), ("metadata", {"usage": {}}), ("usage", None)), (",", ":"), CHAT)
@example((('a"usage', {"prompt_tokens": 2}),), (",", ":"), CHAT)
@example((("choices", [(("a", 1), ("usage", {"prompt_tokens": 2}))]),), (",", ":"), CHAT)
@example((("a", 1), ("usage", {"prompt_tokens": 1}), ("metadata", MARK)), (",", ":"), CHAT)
def test_the_usage_is_the_one_that_the_whole_answer_has(
    answer: Any, separators: tuple[str, str], dialect: Dialect
) -> None:
    body = written(answer, separators).encode()
    whole = orjson.loads(body)
    parts = [whole] if isinstance(whole, dict) else whole
    said = [read_usage(part.get("usage")) for part in parts]
    assert read_answer(body, dialect) == Usage(*(sum(each) for each in zip(*said, strict=True)))


def test_of_a_long_answer_only_the_end_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def loads(text: bytes) -> Any:
        sizes.append(len(text))
        return json.loads(text)

    monkeypatch.setattr(orjson, "loads", loads)
    end = ',"usage":{"prompt_tokens":3,"completion_tokens":4,"prompt_tokens_details":null},"metadata":{"a":"b"}}\n'
    body = ('{"choices":[{"message":{"content":"' + "a" * 1000 + '"}}]' + end).encode()
    assert read_answer(body, Dialect.CHAT) == Usage(3, 4)
    assert sizes == [len(end)]


def test_an_answer_that_is_too_long_is_not_read() -> None:
    answer = orjson.dumps({"usage": {"prompt_tokens": 1}, "x": "a" * READ_MAX_BYTES})
    assert read_answer(answer, Dialect.CHAT) == Usage()


@given(st.sampled_from(Dialect), st.dictionaries(NAMES, JSON, max_size=6))
def test_any_object_is_read_without_raising(dialect: Dialect, value: dict[str, Any]) -> None:
    facts = read_event(value, dialect)
    assert min(facts.usage.prompt_tokens, facts.usage.completion_tokens, facts.usage.cached_tokens) >= 0
    assert type(facts.content) is bool


@given(st.sampled_from(Dialect), st.binary(max_size=100))
def test_any_bytes_are_an_answer_without_raising(dialect: Dialect, body: bytes) -> None:
    assert read_answer(body, dialect).completion_tokens >= 0

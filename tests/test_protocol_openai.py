"""Traits read from a copy of the body: right where it can be read, harmless where it cannot."""

import gc
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.model import Role, Traits
from proxy.protocol.allowlist import ROUTES
from proxy.protocol.openai import COLLECTED_BYTES, MAX_BELIEVED_TOKENS, MAX_MODEL_CHARS, PEEK_MAX_BYTES, read_traits
from proxy.protocol.routes import EngineKind, Route, find
from proxy.protocol.weights import weigh, weighing

JSON_TYPE = b"application/json"
CHAT = find(EngineKind.SGLANG, "POST", "/v1/chat/completions")
GENERATE = find(EngineKind.SGLANG, "POST", "/generate")
OLLAMA = find(EngineKind.SGLANG, "POST", "/api/chat")
ALL = [row for rows in ROUTES.values() for row in rows]


def read(body: dict[str, Any], route: Route = CHAT) -> Traits:
    return read_traits(route, orjson.dumps(body), JSON_TYPE, b"", None)


def test_a_chat_body_tells_its_traits() -> None:
    body = orjson.dumps({"model": "org/m", "n": 3, "stream": True, "messages": [{"role": "user", "content": "x"}]})
    traits = read_traits(CHAT, body, b"application/json; charset=utf-8", b"", Role.BASELINE)
    assert traits == Traits(3, True, "org/m", len(body), False, False, Role.BASELINE)


@pytest.mark.parametrize("stream", [False, None, 1, "true", {}])
def test_only_true_asks_for_a_stream(stream: object) -> None:
    assert not read({"stream": stream}).stream


def test_ollama_streams_unless_told_not_to() -> None:
    assert read({}, OLLAMA).stream
    assert read_traits(OLLAMA, b"{", JSON_TYPE, b"", None).stream
    assert not read({"stream": False}, OLLAMA).stream
    assert not read({}, find(EngineKind.SGLANG, "POST", "/api/show")).stream


@pytest.mark.parametrize(
    "body",
    [
        {"response_format": {"type": "json_schema", "json_schema": {}}},
        {"response_format": {"type": "json_object"}},
        {"response_format": {"type": "structural_tag"}},
        {"regex": "a+"},
        {"ebnf": "root ::= 'a'"},
        {"json_schema": "{}"},
        {"structural_tag": "x"},
        {"guided_json": {"type": "object"}},
        {"guided_choice": ["a", "b"]},
        {"structured_outputs": {"regex": "a"}},
        {"tool_choice": "required"},
        {"tool_choice": {"type": "function", "function": {"name": "f"}}},
        {"tool_choice": {"type": "any"}},
        {"tool_choice": {"type": "tool", "name": "f"}},
        {"text": {"format": {"type": "json_schema"}}},
        {"sampling_params": {"regex": "a"}},
        {"sampling_params": [{}, {"ebnf": "x"}]},
    ],
)
def test_bound_output_is_seen(body: dict[str, Any]) -> None:
    assert read(body).constrained


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"response_format": {"type": "text"}},
        {"response_format": None, "regex": None, "ebnf": "", "tool_choice": None},
        {"tool_choice": "auto", "tools": [{}]},
        {"tool_choice": "none"},
        {"tool_choice": {"type": "auto"}},
        {"text": "a prompt", "sampling_params": {"temperature": 0}},
        {"text": {"format": {"type": "text"}}},
        {"format": "json"},
    ],
)
def test_free_output_is_free(body: dict[str, Any]) -> None:
    assert not read(body).constrained


def test_ollamas_format_binds_the_output() -> None:
    assert read({"format": "json"}, OLLAMA).constrained
    assert not read({"format": ""}, OLLAMA).constrained


def test_engine_side_state_is_seen() -> None:
    assert read({"session_params": {"id": "s"}}, GENERATE).session
    assert read({"previous_response_id": "resp_1"}).session
    assert not read({"session_params": None, "session_id": "s"}).session


@pytest.mark.parametrize(
    ("content_type", "content_encoding", "body"),
    [
        (b"multipart/form-data; boundary=x", b"", b'{"n":4}'),
        (b"text/plain", b"", b'{"n":4}'),
        (JSON_TYPE, b"gzip", b'{"n":4}'),
        (JSON_TYPE, b"", b"{not json"),
        (JSON_TYPE, b"", b""),
        (JSON_TYPE, b"", b"[4]"),
        (JSON_TYPE, b"", b"\xff\xfe{"),
        (JSON_TYPE, b"", b"[" * 100_000),
        (JSON_TYPE, b"", b'{"n":4,"x":"' + b"a" * PEEK_MAX_BYTES + b'"}'),
    ],
    ids=["multipart", "text", "gzip", "broken", "empty", "list", "binary", "deep", "large"],
)
def test_a_body_that_cannot_be_read_weighs_one(content_type: bytes, content_encoding: bytes, body: bytes) -> None:
    traits = read_traits(CHAT, body, content_type, content_encoding, None)
    assert traits == Traits(prompt_bytes=len(body))


@pytest.mark.parametrize(
    ("content_type", "coding"), [(b"", b""), (b"application/vnd.x+json", b" Identity "), (b"text/JSON", b"IDENTITY")]
)
def test_json_by_any_label_is_read(content_type: bytes, coding: bytes) -> None:
    assert read_traits(CHAT, b'{"n":4}', content_type, coding, None).weight == 4


@pytest.mark.parametrize(
    "body", [b'{"n":4}', b'{"n":4,"x":"' + b"a" * COLLECTED_BYTES + b'"}', b"[" * COLLECTED_BYTES * 2]
)
def test_garbage_is_collected_again_when_a_body_has_been_read(body: bytes) -> None:
    assert gc.isenabled()
    read_traits(CHAT, body, JSON_TYPE, b"", None)
    assert gc.isenabled()


def test_a_model_name_that_is_no_name_is_not_carried() -> None:
    assert read({"model": 3}).model is None
    assert read({"model": "m" * (MAX_MODEL_CHARS + 1)}).model is None


@given(st.sampled_from(ALL), st.binary(max_size=200), st.binary(max_size=20), st.binary(max_size=8))
def test_any_bytes_are_read_without_raising(route: Route, body: bytes, kind: bytes, coding: bytes) -> None:
    assert read_traits(route, body, kind, coding, None).weight >= 1


NAMES = st.sampled_from(
    ["n", "prompt", "text", "input", "stream", "model", "sampling_params", "response_format", "tool_choice", "format"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES | st.text(max_size=4), inner, max_size=3),
    max_leaves=10,
)


@given(st.sampled_from(ALL), st.dictionaries(NAMES, VALUES, max_size=6))
def test_any_object_is_read_without_raising(route: Route, body: dict[str, Any]) -> None:
    traits = read_traits(route, orjson.dumps(body, option=orjson.OPT_PASSTHROUGH_SUBCLASS), JSON_TYPE, b"", None)
    assert traits.weight >= 1
    assert type(traits.stream) is bool
    assert type(traits.constrained) is bool


FIELDS = "n sampling_params parameters prompt messages instances input text input_ids inputs texts images items text_1"
MORE_FIELDS = "text_2 queries documents data_1 data_2 input_embeds questions"


@pytest.mark.parametrize("field", [*FIELDS.split(), *MORE_FIELDS.split()])
@pytest.mark.parametrize("told", [3, ["a", "b"], [[1], [2]], [{"n": 2}], {"n": 2}, {"content": ["a", "b"]}])
def test_a_body_weighs_what_each_of_its_fields_makes_it_weigh(field: str, told: object) -> None:
    for row in ALL:
        assert read({field: told}, row).weight == weigh(row.template, {field: told})


def test_a_plain_chat_body_has_nothing_to_be_weighed() -> None:
    assert weighing(CHAT.template).isdisjoint({"model", "messages", "max_tokens", "stream", "temperature", "top_p"})


# ---------------------------------------------------------------- the limit of an answer


@pytest.mark.parametrize(
    ("body", "limit"),
    [
        ({}, None),
        ({"max_tokens": 7}, 7),
        ({"max_tokens": 7, "max_completion_tokens": 5}, 5),
        ({"max_output_tokens": 9}, 9),
        ({"max_tokens": 10**18}, MAX_BELIEVED_TOKENS),
        ({"sampling_params": {"max_new_tokens": 12}}, 12),
        ({"sampling_params": [{"max_new_tokens": 12}, {"max_new_tokens": 30}]}, 30),
        ({"sampling_params": [{"max_new_tokens": 12}, {}]}, None),
        ({"parameters": {"sampling_params": {"max_new_tokens": 3}}}, 3),
        ({"options": {"num_predict": 4}}, 4),
        *(({"max_tokens": odd}, None) for odd in (0, -1, True, 5.5, "5", [], {})),
        ({"options": {"num_predict": -1}}, None),
        ({"options": 5, "sampling_params": 5}, None),
    ],
)
def test_the_most_that_a_sequence_may_generate_is_read_where_the_body_says_it(
    body: dict[str, Any], limit: int | None
) -> None:
    assert read(body).max_tokens == limit

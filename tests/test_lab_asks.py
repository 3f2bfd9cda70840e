import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.lab.ask_parts import BadAskError, id_prompt, text_prompt
from proxy.lab.asks import Ask, read_ask
from proxy.lab.invent import invent
from proxy.model import Dialect

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hello there"}]}
TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"properties": {"q": {"type": "string"}}}}}
DIALECTS = list(Dialect)


def _read(dialect: Dialect, body: Any, content_type: str = "application/json", context: int = 4096) -> Ask:
    return read_ask(dialect, orjson.dumps(body), content_type, "own", context)


def test_a_chat_is_read_with_its_wishes() -> None:
    wishes = {"n": 3, "stream": True, "max_tokens": 7, "min_tokens": 2, "ignore_eos": True, "rid": "r1", "seed": 5}
    ask = _read(Dialect.CHAT, {**CHAT, **wishes, "stream_options": {"include_usage": True}})
    assert (ask.n, ask.stream, ask.max_tokens, ask.min_tokens, ask.ignore_eos) == (3, True, 7, 2, True)
    assert (ask.rid, ask.seed, ask.usage, ask.model) == ("r1", 5, True, "m")


def test_max_completion_tokens_goes_before_max_tokens() -> None:
    assert _read(Dialect.CHAT, {**CHAT, "max_completion_tokens": 9, "max_tokens": 5}).max_tokens == 9


def test_a_body_without_a_limit_or_a_model_gets_the_engines_own() -> None:
    ask = _read(Dialect.COMPLETIONS, {"prompt": "x"})
    assert (ask.max_tokens, ask.model) == (256, "own")


@pytest.mark.parametrize(
    ("prompt", "count", "batched"),
    [("x", 1, False), (["x", "y"], 2, True), ([1, 2, 3], 1, False), ([[1], [2, 3]], 2, True)],
)
def test_prompts_are_counted_as_the_engine_runs_them(prompt: Any, count: int, batched: bool) -> None:
    ask = _read(Dialect.COMPLETIONS, {"prompt": prompt})
    assert (len(ask.prompts), ask.batched) == (count, batched)


def test_the_native_route_keeps_its_wishes_in_sampling_params() -> None:
    ask = _read(Dialect.GENERATE, {"text": ["a", "b"], "sampling_params": {"n": 2, "max_new_tokens": 3}})
    assert (len(ask.prompts), ask.n, ask.max_tokens) == (2, 2, 3)


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "look_up"}}])
def test_a_required_tool_is_called_with_arguments_of_its_schema(choice: Any) -> None:
    ask = _read(Dialect.CHAT, {**CHAT, "tools": [TOOL], "tool_choice": choice})
    assert ask.tool == "look_up"
    assert ask.fixed is not None
    assert list(json.loads(ask.fixed)) == ["q"]


def test_a_tool_that_may_be_called_is_not_called() -> None:
    assert _read(Dialect.CHAT, {**CHAT, "tools": [TOOL], "tool_choice": "auto"}).tool is None


def test_anthropic_tools_are_called_when_any_is_asked_for() -> None:
    tool = {"name": "f", "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}}}}
    ask = _read(Dialect.MESSAGES, {**CHAT, "max_tokens": 9, "tools": [tool], "tool_choice": {"type": "any"}})
    assert (ask.tool, ask.fixed) == ("f", '{"a":7}')


def test_the_same_beginning_shares_the_fingerprints_of_its_blocks() -> None:
    one, two = text_prompt("a" * 5000 + "x"), text_prompt("a" * 5000 + "y" * 3000)
    assert (len(one.blocks), len(two.blocks)) == (2, 3)
    assert two.blocks[:2] == one.blocks
    assert one.fingerprint != two.fingerprint


def test_token_ids_make_blocks_of_512() -> None:
    assert (id_prompt([7] * 1030).tokens, len(id_prompt([7] * 1030).blocks)) == (1030, 2)


@pytest.mark.parametrize(
    ("dialect", "body", "kind", "complaint"),
    [
        (Dialect.CHAT, {"model": "m"}, "Bad Request", "'missing'.*'messages'"),
        (Dialect.CHAT, {"messages": "x"}, "Bad Request", "list of messages"),
        (Dialect.CHAT, [], "Bad Request", "an object"),
        (Dialect.CHAT, {**CHAT, "max_tokens": -1}, "BadRequestError", "at least 0, got -1"),
        (Dialect.CHAT, {**CHAT, "max_tokens": "9"}, "Bad Request", "valid integer"),
        (Dialect.CHAT, {**CHAT, "n": 0}, "Bad Request", "at least 1"),
        (Dialect.CHAT, {**CHAT, "n": 1_000_000_000}, "Bad Request", "'n'.*less than or equal to 128"),
        (Dialect.GENERATE, {"text": "x", "sampling_params": {"n": 129}}, "Bad Request", "less than or equal to 128"),
        (Dialect.CHAT, {**CHAT, "max_tokens": 100_000}, "BadRequestError", "at most 4096 completion tokens"),
        (Dialect.CHAT, {**CHAT, "max_tokens": 4095}, "BadRequestError", "maximum context length"),
        (Dialect.CHAT, {**CHAT, "tool_choice": {"function": {"name": "z"}}}, "BadRequestError", "not in tools"),
        (Dialect.COMPLETIONS, {"prompt": "x" * 20_000}, "BadRequestError", "longer than the model's context"),
        (Dialect.COMPLETIONS, {"prompt": [1, "x"]}, "Bad Request", "text or token ids"),
        (Dialect.GENERATE, {}, "BadRequestError", "text, input_ids"),
        (Dialect.MESSAGES, CHAT, "Bad Request", "'max_tokens'"),
    ],
)
def test_what_a_real_engine_refuses_is_refused(dialect: Dialect, body: Any, kind: str, complaint: str) -> None:
    with pytest.raises(BadAskError, match=complaint) as caught:
        _read(dialect, body)
    assert caught.value.kind == kind


def test_another_content_type_and_broken_json_are_refused() -> None:
    with pytest.raises(BadAskError, match="application/json"):
        _read(Dialect.CHAT, CHAT, content_type="text/plain")
    with pytest.raises(BadAskError, match="json_invalid"):
        read_ask(Dialect.CHAT, b"{not json", "application/json; charset=utf-8", "own", 4096)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    ["messages", "prompt", "text", "input", "tools", "tool_choice", "n", "max_tokens", "sampling_params", "options"]
)


@given(st.sampled_from(DIALECTS), st.dictionaries(FIELDS, JSON, max_size=6))
def test_any_body_is_understood_or_refused(dialect: Dialect, body: dict[str, Any]) -> None:
    try:
        assert _read(dialect, body).max_tokens >= 1
    except BadAskError as bad:
        assert bad.message


def test_invented_values_fit_common_schemas() -> None:
    schema = {
        "type": "object",
        "properties": {
            "s": {"type": "string", "maxLength": 4},
            "e": {"enum": ["x", "y"]},
            "c": {"const": 3},
            "l": {"type": "array", "items": {"$ref": "#/$defs/n"}, "minItems": 2},
            "u": {"anyOf": [{"type": "null"}, {"type": "string"}]},
            "b": {"type": ["boolean", "null"]},
        },
        "$defs": {"n": {"type": "integer", "minimum": 20}},
    }
    assert invent(schema) == {"s": "made", "e": "x", "c": 3, "l": [20, 20], "u": None, "b": True}


def test_a_schema_that_refers_to_itself_ends() -> None:
    schema = {"type": "object", "properties": {"next": {"$ref": "#"}}}
    assert "next" in invent(schema)

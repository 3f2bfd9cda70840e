"""How prompts begin: equal beginnings have equal hashes, whatever else a body says, and nothing is read twice."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.protocol.openai import read_traits
from proxy.protocol.prefixes import (
    BLOCK_BYTES,
    MAX_BLOCKS,
    read_conversation,
    read_prefix,
    read_state,
    response_state,
)
from proxy.protocol.routes import EngineKind, find

CHAT = find(EngineKind.SGLANG, "POST", "/v1/chat/completions")
WORDS = "The quick brown fox jumps over the lazy dog. "


def text(number: int, blocks: float) -> str:
    """A text of its own for each number, of so many blocks."""
    return f"{number}: {WORDS * 200}"[:20] + WORDS * int(blocks * BLOCK_BYTES / len(WORDS))


def message(role: str, said: str) -> dict[str, Any]:
    return {"role": role, "content": said}


TURN = [message("system", text(0, 1.5)), message("user", text(1, 2))]
NEXT = [*TURN, message("assistant", text(2, 1)), message("user", text(3, 3))]


def test_the_next_turn_of_a_conversation_begins_with_the_hashes_of_the_last() -> None:
    first, second = read_prefix({"messages": TURN}), read_prefix({"messages": NEXT})
    assert len(first) == 3
    assert second[:3] == first
    assert len(second) > 5


def test_each_hash_stands_for_all_before_it() -> None:
    first = read_prefix({"messages": TURN})
    other = read_prefix({"messages": [message("system", text(9, 1.5)), *TURN[1:]]})
    assert set(first).isdisjoint(other)
    assert len(set(first)) == len(first)


def test_other_fields_and_their_order_say_nothing() -> None:
    plain = {"model": "m", "messages": TURN, "stream": True}
    turned = {"temperature": 0.2, "stream": False, "messages": TURN, "n": 3, "model": "m"}
    assert read_prefix(plain) == read_prefix(turned) != ()


@pytest.mark.parametrize("field", ["tools", "system", "instructions", "model", "cache_salt", "lora_path", "extra_key"])
def test_what_a_template_puts_first_and_what_parts_a_cache_makes_another_prefix(field: str) -> None:
    plain, other = read_prefix({"messages": TURN}), read_prefix({"messages": TURN, field: [message("a", "b")]})
    assert set(plain).isdisjoint(other)
    assert len(other) >= 3


@pytest.mark.parametrize(
    ("field", "prompt", "longer"),
    [
        ("prompt", text(1, 2), text(1, 3)),
        ("input", TURN, NEXT),
        ("text", text(1, 2), text(1, 3)),
        ("input_ids", list(range(2000)), list(range(3000))),
        ("prompt", [text(1, 2), "another prompt"], [text(1, 3)]),
        ("input_ids", [list(range(2000)), [1]], [list(range(3000))]),
    ],
)
def test_prompts_of_every_kind_grow_by_what_is_appended(field: str, prompt: Any, longer: Any) -> None:
    first, second = read_prefix({field: prompt}), read_prefix({field: longer})
    assert len(first) >= 2
    assert second[: len(first)] == first


def test_a_prompt_below_one_block_has_no_prefix_and_a_long_one_a_bounded_one() -> None:
    assert read_prefix({"messages": [message("user", "x" * (BLOCK_BYTES - 60))]}) == ()
    assert len(read_prefix({"prompt": "x" * (2 * MAX_BLOCKS * BLOCK_BYTES)})) == MAX_BLOCKS


@pytest.mark.parametrize("odd", [2**70, "\ud800", {1: 2}])
def test_what_cannot_be_said_again_has_no_prefix(odd: object) -> None:
    assert read_prefix({"messages": [message("user", text(1, 3)), odd]}) == ()


@pytest.mark.parametrize("name", ["session_id", "conversation_id", "conversation", "prompt_cache_key"])
def test_the_names_of_a_conversation_are_read(name: str) -> None:
    said = read_conversation({name: "one"}, b"", ())
    assert said
    assert said == read_conversation({name: "one", "user": "me"}, b"", (1,))
    assert said != read_conversation({name: "two"}, b"", ())
    assert read_conversation({name: {"id": "one"}}, b"", ()) == said


def test_a_header_goes_before_what_the_body_says() -> None:
    assert read_conversation({"session_id": "one"}, b"key", ()) == read_conversation({}, b"key", ()) != 0


@pytest.mark.parametrize("body", [{"user": "me"}, {"safety_identifier": "me"}, {"metadata": {"user_id": "me"}}])
def test_who_talks_counts_only_with_how_the_prompt_begins(body: dict[str, Any]) -> None:
    assert read_conversation(body, b"", ()) == 0
    assert read_conversation(body, b"", (1, 2)) == read_conversation(body, b"", (1, 3)) != 0
    assert read_conversation(body, b"", (1,)) != read_conversation(body, b"", (2,))


@pytest.mark.parametrize("odd", [None, 3, "", [], {}, True, {"id": 3}, "\ud800"])
def test_odd_names_are_none(odd: Any) -> None:
    assert isinstance(read_conversation({"session_id": odd, "user": odd, "metadata": odd}, b"", (1,)), int)
    assert read_state({"previous_response_id": odd if odd != "\ud800" else 0}) == 0


def test_state_is_named_by_a_response_or_a_session() -> None:
    assert read_state({"previous_response_id": "resp_1"}) == response_state("resp_1") != 0
    assert read_state({"session_params": {"id": "resp_1"}}) not in (0, response_state("resp_1"))
    assert read_state({}) == 0


def test_prefixes_are_read_only_where_they_are_asked_for_and_only_of_what_may_have_a_block() -> None:
    long, short = ({"messages": [message("user", "x" * size)], "session_id": "s"} for size in (BLOCK_BYTES, 10))

    def read(body: dict[str, Any], *, prefixed: bool) -> tuple[tuple[int, ...], int]:
        traits = read_traits(CHAT, orjson.dumps(body), b"application/json", b"", None, prefixed=prefixed)
        return traits.prefix, traits.conversation

    prefix, conversation = read(long, prefixed=True)
    assert len(prefix) == 1
    assert conversation
    assert read(long, prefixed=False) == read(short, prefixed=True) == ((), 0)


def test_a_body_that_is_too_long_to_be_parsed_still_has_the_name_that_a_header_gives() -> None:
    body = b'{"messages": "' + b"x" * (3 << 20) + b'"}'
    traits = read_traits(CHAT, body, b"application/json", b"", None, prefixed=True, key=b"key")
    assert traits.prefix == ()
    assert traits.conversation != 0


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
FIELDS = st.sampled_from(
    [
        "messages",
        "prompt",
        "input",
        "tools",
        "system",
        "user",
        "metadata",
        "session_id",
        "model",
        "previous_response_id",
    ]
)


@given(st.dictionaries(FIELDS, JSON | st.text(min_size=BLOCK_BYTES, max_size=BLOCK_BYTES + 5)), st.binary(max_size=9))
def test_any_body_is_read_without_raising_and_alike_each_time(body: dict[str, Any], key: bytes) -> None:
    prefix = read_prefix(body)
    assert read_prefix(dict(reversed(body.items()))) == prefix
    assert len(prefix) <= MAX_BLOCKS
    assert isinstance(read_conversation(body, key, prefix), int)
    assert isinstance(read_state(body), int)


@pytest.mark.parametrize(
    "asked",
    [
        {"prompt_logprobs": 0},
        {"echo": True, "logprobs": 1},
        {"echo": True, "logprobs": 0},
        {"return_logprob": True, "logprob_start_len": 0},
    ],
)
def test_a_prompt_that_is_computed_anew_whatever_is_cached_has_no_hashes(asked: dict[str, Any]) -> None:
    assert read_prefix({"prompt": text(0, 3), **asked}) == ()


@pytest.mark.parametrize(
    "asked",
    [
        {"prompt_logprobs": None},
        {"echo": True},
        {"echo": False, "logprobs": 1},
        {"return_logprob": True, "logprob_start_len": -1},
        {"logprob_start_len": 0},
    ],
)
def test_a_prompt_of_which_only_the_answer_s_probabilities_are_asked_has_its_hashes(asked: dict[str, Any]) -> None:
    assert len(read_prefix({"prompt": text(0, 3), **asked})) == 3

"""Sequences of a body, route by route."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.protocol.allowlist import ROUTES
from proxy.protocol.weights import MAX_CHOICES, MAX_LOOKED_AT, MAX_WEIGHT, weigh

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
FIELDS = st.sampled_from(
    [
        "n",
        "prompt",
        "messages",
        "text",
        "input_ids",
        "input_embeds",
        "sampling_params",
        "parameters",
        "instances",
        "input",
        "documents",
        "items",
        "text_2",
        "questions",
        "texts",
        "queries",
    ]
)
TEMPLATES = sorted({row.template for rows in ROUTES.values() for row in rows})


@pytest.mark.parametrize(
    ("template", "body", "weight"),
    [
        ("/v1/chat/completions", {"messages": [{}, {}]}, 1),
        ("/v1/chat/completions", {"n": 16}, 16),
        ("/invocations", {"n": 2}, 2),
        ("/v1/completions", {"prompt": "a long one"}, 1),
        ("/v1/completions", {"prompt": ["a", "b", "c"], "n": 2}, 6),
        ("/v1/completions", {"prompt": [1, 2, 3], "n": 2}, 2),
        ("/v1/completions", {"prompt": [[1, 2], [3]]}, 2),
        ("/v1/completions", {"prompt": [], "n": 3}, 3),
        ("/v1/chat/completions/batch", {"messages": [[{}], [{}], [{}]], "n": 2}, 6),
        ("/generate", {"text": "a"}, 1),
        ("/generate", {"text": ["a", "b"], "sampling_params": {"n": 3}}, 6),
        ("/generate", {"input_ids": [1, 2, 3], "sampling_params": {"n": 2}}, 2),
        ("/generate", {"input_ids": [[1], [2], [3]]}, 3),
        ("/generate", {"input_embeds": [[0.1, 0.2], [0.3, 0.4]]}, 1),
        ("/generate", {"input_embeds": [[[0.1], [0.2]], [[0.3]]]}, 2),
        ("/generate", {"text": ["a", "b"], "sampling_params": [{"n": 2}, {"n": 2}]}, 4),
        ("/generate", {"text": "a", "n": 5}, 1),
        ("/inference/v1/generate", {"token_ids": [1, 2], "sampling_params": {"n": 4}}, 4),
        ("/vertex_generate", {"instances": [{"text": "a"}, {"text": "b"}]}, 2),
        ("/vertex_generate", {"instances": [{}, {}], "parameters": {"sampling_params": {"n": 2}}}, 4),
        ("/v1/embeddings", {"input": ["a", "b"]}, 2),
        ("/v1/embeddings", {"input": [1, 2, 3]}, 1),
        ("/v1/embeddings", {"input": [{"text": "a"}, {"image": "b"}]}, 2),
        ("/encode", {"text": ["a", "b", "c"]}, 3),
        ("/v2/embed", {"texts": ["a", "b"]}, 2),
        ("/v1/rerank", {"query": "q", "documents": ["a", "b", "c"]}, 3),
        ("/v1/rerank", {"query": "q", "documents": {"content": [{}, {}]}}, 2),
        ("/v1/score", {"query": "q", "items": ["a", "b"]}, 2),
        ("/v1/score", {"text_1": "q", "text_2": ["a", "b", "c", "d"]}, 4),
        ("/v1/decisions", {"state": {}, "questions": {"a": {}, "b": {}}}, 2),
        ("/v1/decisions", {"input": "x", "questions": [{}, {}, {}]}, 3),
        ("/v1/messages", {"n": 9, "messages": [{}]}, 1),
        ("/v1/responses", {"n": 9, "input": ["a", "b"]}, 1),
        ("/api/chat", {"n": 9}, 1),
        ("/tokenize", {"prompt": ["a", "b"]}, 1),
    ],
)
def test_a_body_weighs_its_prompts_times_its_choices(template: str, body: dict[str, Any], weight: int) -> None:
    assert weigh(template, body) == weight


@pytest.mark.parametrize("n", [4, 4.0, "4", " 4"])
def test_what_engines_take_for_a_whole_number_counts(n: object) -> None:
    assert weigh("/v1/chat/completions", {"n": n}) == 4


@pytest.mark.parametrize("n", [None, True, False, 0, -1, 2.5, "x", "9" * 40, [4], {}])
def test_what_is_not_a_whole_number_of_one_or_more_counts_once(n: object) -> None:
    assert weigh("/v1/chat/completions", {"n": n}) == 1


def test_absurd_numbers_are_clipped() -> None:
    assert weigh("/v1/chat/completions", {"n": 10**18}) == MAX_CHOICES
    assert weigh("/v1/completions", {"prompt": ["a"] * 2000, "n": 10**18}) == MAX_WEIGHT


@given(st.sampled_from(TEMPLATES), st.dictionaries(FIELDS | st.text(max_size=5), JSON, max_size=6))
def test_any_object_weighs_between_one_and_the_maximum(template: str, body: dict[str, Any]) -> None:
    assert 1 <= weigh(template, body) <= MAX_WEIGHT


@given(st.lists(st.text(max_size=3), min_size=1, max_size=50), st.integers(1, MAX_CHOICES))
def test_prompts_times_choices_holds_for_all_batches(prompts: list[str], n: int) -> None:
    assert weigh("/v1/completions", {"prompt": prompts, "n": n}) == min(len(prompts) * n, MAX_WEIGHT)
    assert weigh("/generate", {"text": prompts, "sampling_params": {"n": n}}) == min(len(prompts) * n, MAX_WEIGHT)


def test_of_a_list_of_sampling_parameters_only_so_many_are_looked_at() -> None:
    within = [{}] * (MAX_LOOKED_AT - 1) + [{"n": 3}]
    assert weigh("/generate", {"text": "a", "sampling_params": within}) == 3
    assert weigh("/generate", {"text": "a", "sampling_params": [{}, *within]}) == 1

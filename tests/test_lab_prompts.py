import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.lab.prompts import CONVERSATIONS, PromptKind, choose

KINDS = st.sampled_from(PromptKind)


@given(KINDS, st.integers(), st.integers(0, 10_000))
def test_choice_is_the_same_for_the_same_arguments(kind: PromptKind, seed: int, index: int) -> None:
    assert choose(kind, seed, index) == choose(kind, seed, index)


@given(KINDS, st.integers(), st.integers(0, 50))
def test_each_round_sends_every_conversation_once(kind: PromptKind, seed: int, turn: int) -> None:
    size = len(CONVERSATIONS[kind])
    sent = [str(choose(kind, seed, index)) for index in range(turn * size, (turn + 1) * size)]
    assert len(set(sent)) == size


def test_order_differs_when_the_seed_differs() -> None:
    first, second = ([str(choose(PromptKind.MIXED, seed, index)) for index in range(8)] for seed in (1, 2))
    assert first != second


@given(KINDS, st.lists(st.integers(0, 10_000), min_size=2, max_size=20, unique=True))
def test_beginnings_are_unique_when_a_nonce_is_given(kind: PromptKind, indexes: list[int]) -> None:
    beginnings = {choose(kind, 0, index, "run")[0]["content"].partition("\n")[0] for index in indexes}
    assert len(beginnings) == len(indexes)


def test_the_nonce_of_one_choice_leaves_no_trace_in_the_next() -> None:
    choose(PromptKind.PROSE, 0, 0, "run")
    assert "run-0" not in choose(PromptKind.PROSE, 0, 0)[0]["content"]


@pytest.mark.parametrize("kind", PromptKind)
def test_conversations_end_with_the_user_and_take_turns(kind: PromptKind) -> None:
    for conversation in CONVERSATIONS[kind]:
        spoken = [role for role, _ in conversation if role != "system"]
        assert spoken == [("user", "assistant")[place % 2] for place in range(len(spoken))]
        assert spoken[-1] == "user"
        assert all(text.strip() and not text.startswith("===") for _, text in conversation)


def test_there_are_a_dozen_coding_and_agentic_conversations_and_some_have_several_turns() -> None:
    mixed = CONVERSATIONS[PromptKind.MIXED]
    assert len(set(mixed)) >= 12
    assert sum(len(conversation) > 2 for conversation in mixed) >= 6

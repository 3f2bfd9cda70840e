"""Expected answers: the prior, the mean of the latest ones, and each route for itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.state.answers import NEWEST, PRIOR_TOKENS, Answers

CHAT, PLAIN = "/v1/chat/completions", "/v1/completions"


def test_without_any_answer_the_prior_is_expected() -> None:
    assert Answers().expected(CHAT) == PRIOR_TOKENS


def test_answers_that_are_all_alike_are_expected_in_the_end_and_on_their_route_alone() -> None:
    answers = Answers()
    answers.heard(CHAT, 16.0)
    assert answers.expected(CHAT) == pytest.approx(PRIOR_TOKENS + NEWEST * (16 - PRIOR_TOKENS))
    for _ in range(200):
        answers.heard(CHAT, 16.0)
    assert answers.expected(CHAT) == pytest.approx(16.0, rel=0.01)
    assert answers.expected(PLAIN) == PRIOR_TOKENS


def test_an_answer_whose_engine_told_no_count_says_nothing() -> None:
    answers = Answers()
    answers.heard(CHAT, 0.0)
    assert answers.expected(CHAT) == PRIOR_TOKENS


@given(st.lists(st.floats(1, 1e6)))
def test_what_is_expected_lies_within_what_was_seen(lengths: list[float]) -> None:
    answers = Answers()
    for tokens in lengths:
        answers.heard(CHAT, tokens)
    seen = [PRIOR_TOKENS, *lengths]
    assert min(seen) * (1 - 1e-9) <= answers.expected(CHAT) <= max(seen) * (1 + 1e-9)


def test_answers_that_their_clients_cut_short_pull_no_mean_down() -> None:
    answers = Answers()
    for _ in range(200):
        answers.heard(CHAT, 1.0, 1)
    assert answers.expected(CHAT) == PRIOR_TOKENS


def test_answers_that_reach_a_limit_beyond_the_mean_pull_it_up() -> None:
    answers = Answers()
    answers.heard(CHAT, 1000.0, 1000)
    assert answers.expected(CHAT) == pytest.approx(PRIOR_TOKENS + NEWEST * (1000 - PRIOR_TOKENS))


def test_an_answer_that_ends_before_its_limit_counts_as_any_other() -> None:
    answers = Answers()
    answers.heard(CHAT, 16.0, 4096)
    assert answers.expected(CHAT) == pytest.approx(PRIOR_TOKENS + NEWEST * (16 - PRIOR_TOKENS))

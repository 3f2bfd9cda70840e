"""Expected answers: the prior, the mean of the latest ones, and each route for itself."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.state.answers import MOST_AHEAD, NEWEST, PRIOR_TOKENS, PRIOR_WEIGHS, Answers

CHAT, PLAIN = "/v1/chat/completions", "/v1/completions"
FIRST = 1.0 / (PRIOR_WEIGHS + 1.0)


def test_without_any_answer_the_prior_is_expected() -> None:
    assert Answers().expected(CHAT) == PRIOR_TOKENS


def test_answers_that_are_all_alike_are_expected_in_the_end_and_on_their_route_alone() -> None:
    answers = Answers()
    answers.heard(CHAT, 16.0)
    assert answers.expected(CHAT) == pytest.approx(PRIOR_TOKENS + FIRST * (16 - PRIOR_TOKENS))
    for _ in range(1000):
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
    assert answers.expected(CHAT) == pytest.approx(PRIOR_TOKENS + FIRST * (1000 - PRIOR_TOKENS))


def test_an_answer_that_ends_before_its_limit_counts_as_any_other() -> None:
    answers = Answers()
    answers.heard(CHAT, 16.0, 4096)
    assert answers.expected(CHAT) == pytest.approx(PRIOR_TOKENS + FIRST * (16 - PRIOR_TOKENS))


def test_of_many_answers_the_newest_moves_the_mean_by_no_less_than_its_weight() -> None:
    answers = Answers()
    for _ in range(1000):
        answers.heard(CHAT, 100.0)
    before = answers.expected(CHAT)
    answers.heard(CHAT, 200.0)
    assert answers.expected(CHAT) == pytest.approx(before + NEWEST * (200.0 - before))


# ---------------------------------------------------------------- in the order in which they were asked for


def told(rate_s: float, mean: float, lasts_s: float) -> float:
    """What is expected after so long where requests come evenly, lengths are exponential, and a token takes 0.1 s."""
    answers, chance = Answers(), Random(1)
    asked = [(number * rate_s, chance.expovariate(1.0 / mean)) for number in range(round(lasts_s / rate_s))]
    for ends_s, asked_at_s, tokens in sorted((at_s + 0.1 * tokens, at_s, tokens) for at_s, tokens in asked):
        flying = [at_s for at_s, tokens in asked if at_s <= ends_s < at_s + 0.1 * tokens]
        if ends_s <= lasts_s:
            oldest_at_s = min(flying, default=ends_s)
            answers.ended(asked_at_s, CHAT, tokens, None, oldest_at_s=oldest_at_s, in_flight=len(flying))
    return answers.expected(CHAT)


def test_answers_that_have_just_begun_to_end_are_not_all_taken_for_short() -> None:
    # After the time of one mean answer hardly any but the shorter half has ended.
    assert told(0.1, 256.0, 26.0) > 0.75 * 256.0
    assert told(0.1, 1000.0, 300.0) > 256.0, "and longer ones are seen to be longer"


def test_one_who_stays_for_ever_holds_no_more_than_a_few_answers_up() -> None:
    answers = Answers()
    for number in range(MOST_AHEAD):
        answers.ended(10.0 + number, CHAT, 16.0, None, oldest_at_s=1.0, in_flight=1)
    assert answers.expected(CHAT) == PRIOR_TOKENS, "they were asked for later"
    answers.ended(100.0, CHAT, 16.0, None, oldest_at_s=1.0, in_flight=1)
    assert answers.expected(CHAT) == pytest.approx(PRIOR_TOKENS + FIRST * (16 - PRIOR_TOKENS)), "the first of them"
    answers.ended(1.0, CHAT, 16.0, None, oldest_at_s=200.0, in_flight=1)
    assert len(answers._early) == 0

"""What polls and answers show of a speed, and what shows nothing."""

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.routing.evidence import LEAST_TOKENS, Seen, by_answer, by_counter, by_moments

# 100 steps of 4 sequences, 20 ms each, 2.5 tokens for each sequence in each.
STEPS = (100.0, 400.0, 2e6, 1600.0, 8e6, 1000.0)
BEFORE = (1e4, 5e4, 1e9, 1e6, 1e10, 2e5)
ANY = st.floats(allow_nan=True, allow_infinity=True) | st.sampled_from([0.0, 1.0, 1e18, -1.0])


def after(gained: tuple[float, ...] = STEPS) -> tuple[float, ...]:
    return tuple(old + new for old, new in zip(BEFORE, gained, strict=True))


def test_moments_tell_batch_and_seconds_for_a_token() -> None:
    seen = by_moments(BEFORE, after(), 1)
    assert seen is not None
    assert (seen.in_flight, seen.spread) == (4.0, 0.0)
    assert seen.seconds_per_token == pytest.approx(0.020 / 2.5)


def test_batches_that_differ_are_compared_with_as_many_of_the_curve() -> None:
    # Half the steps with 2, half with 6, on an engine whose step takes 10 ms and 2 ms for each sequence.
    steps = [(2.0, 14e3)] * 50 + [(6.0, 22e3)] * 50
    gained = (
        100.0,
        sum(b for b, _ in steps),
        sum(us for _, us in steps),
        sum(b * b for b, _ in steps),
        sum(b * us for b, us in steps),
        sum(b for b, _ in steps),
    )
    seen = by_moments(BEFORE, after(gained), 1)
    assert seen is not None and seen.spread == pytest.approx(2.0)
    assert seen.ratio(lambda n: n * (0.010 + 0.002 * n)) == pytest.approx(1.0)


def test_ranks_that_step_side_by_side_hold_their_batches_together() -> None:
    seen = by_moments(BEFORE, after(), 8)
    assert seen is not None and seen.in_flight == 32.0
    assert seen.seconds_per_token == pytest.approx(0.020 / 2.5)


@pytest.mark.parametrize(
    "gained",
    [
        (-1e4, -5e4, -1e9, -1e6, -1e10, -2e5),  # the engine was started anew
        (0.0,) * 6,
        (nan,) * 6,
        (inf,) * 6,
        (*STEPS[:5], 0.0),
        (*STEPS[:4], 1e18, 1.0),
    ],
)
def test_moments_that_cannot_be_true_show_nothing(gained: tuple[float, ...]) -> None:
    assert by_moments(BEFORE, after(gained), 1) is None


@given(st.lists(ANY, max_size=8), st.lists(ANY, max_size=8), st.integers(-1, 1000))
def test_any_two_looks_are_nothing_or_a_possible_speed(one: list[float], other: list[float], ranks: int) -> None:
    assert_possible(by_moments(one, other, ranks))


@given(ANY, st.tuples(ANY, ANY), st.floats(0.3, 1.0))
def test_any_counters_are_nothing_or_a_possible_speed(
    tokens: float, held: tuple[float, float], decoding: float
) -> None:
    assert_possible(by_counter(tokens, held, decoding))


@given(ANY, ANY, ANY)
def test_any_answer_is_nothing_or_a_possible_speed(tpot_s: float, tokens: float, in_flight: float) -> None:
    assert_possible(by_answer(tpot_s, tokens, in_flight))


def assert_possible(seen: Seen | None) -> None:
    if seen is not None:
        assert 1e-6 <= seen.seconds_per_token <= 1e3
        assert 0.5 <= seen.in_flight <= 1e6
        assert 0.0 < seen.variance < inf and 0.0 <= seen.spread < inf
        assert 0.0 < seen.ratio(lambda n: 0.01 * n) < inf


def test_counted_tokens_tell_the_speed_of_each_sequence() -> None:
    # Two seconds with three in flight and two with none: what is idle tells nothing.
    seen = by_counter(300.0, (6.0, 18.0), 1.0)
    assert seen is not None and seen.in_flight == 3.0
    assert seen.seconds_per_token == pytest.approx(0.02)


def test_time_that_went_to_prompts_is_not_counted() -> None:
    seen = by_counter(300.0, (6.0, 18.0), 0.75)
    assert seen is not None and seen.seconds_per_token == pytest.approx(0.015)


def test_counters_of_an_idle_engine_show_nothing() -> None:
    assert by_counter(300.0, (0.0, 0.0), 1.0) is None


def test_a_short_answer_shows_nothing() -> None:
    assert by_answer(0.02, LEAST_TOKENS - 1, 3.0) is None
    assert by_answer(0.02, LEAST_TOKENS, 3.0) is not None

"""The demand: a steady stream is told at its rate, what is long past fades, and the means are those of who asks."""

from math import exp

import pytest
from fakes.speeds import shipped
from hypothesis import given
from hypothesis import strategies as st

from proxy.model import Demand, Regime, Traits
from proxy.routing.demand import BYTES_PER_TOKEN, DEMAND_S, MAX_PROMPT_TOKENS, aged, arrived, withdrawn
from proxy.routing.marginal import EXPECTED_TOKENS
from proxy.routing.policy import follow
from proxy.routing.rules import Rules


def test_demand_is_what_was_lately_asked_for() -> None:
    regime = Regime(smoothed_at_s=0.0)
    for _ in range(3):
        regime = arrived(regime, Traits(weight=2, prompt_bytes=4000), 100.0)
    assert regime.demand.tok_s == pytest.approx(600.0 / DEMAND_S)
    assert aged(regime, 0.5 * DEMAND_S).tok_s == pytest.approx(regime.demand.tok_s * exp(-0.5))
    assert aged(regime, -5.0) == regime.demand, "time that goes backwards stands still"


def test_a_steady_stream_is_told_at_its_rate() -> None:
    rules, regime = Rules(curves=shipped("seed")), Regime(smoothed_at_s=0.0)
    for second in range(300):
        regime = arrived(follow(rules, regime, 3, float(second)), Traits(), 256.0)
    assert regime.demand.tok_s == pytest.approx(EXPECTED_TOKENS, rel=0.05)


def test_context_and_answer_are_the_means_of_those_that_ask_each_by_what_it_asks() -> None:
    regime = Regime(smoothed_at_s=0.0)
    for weight, tokens, answer in ((1, 100, 10.0), (1, 300, 10.0), (2, 1000, 40.0)):
        regime = arrived(regime, Traits(weight=weight, prompt_bytes=int(tokens * BYTES_PER_TOKEN)), answer)
    assert regime.demand.context_tokens == pytest.approx((10 * 100 + 10 * 300 + 80 * 1000) / 100)
    assert regime.demand.answer_tokens == pytest.approx((10 * 10 + 10 * 10 + 80 * 40) / 100)


def test_prompts_are_counted_once_and_only_what_is_not_cached_where_they_go() -> None:
    regime = arrived(Regime(smoothed_at_s=0.0), Traits(weight=4, prompt_bytes=4000), 256.0)
    assert regime.demand.prompt_tok_s == pytest.approx(1000.0 / DEMAND_S), "all four answers are of one prompt"
    later = arrived(regime, Traits(prompt_bytes=4000), 256.0, 900).demand
    assert later.prompt_tok_s == pytest.approx(1100.0 / DEMAND_S)
    assert arrived(regime, Traits(prompt_bytes=4000), 256.0, 1024).demand.prompt_tok_s == regime.demand.prompt_tok_s
    assert aged(regime, DEMAND_S).prompt_tok_s == pytest.approx(regime.demand.prompt_tok_s * exp(-1.0))
    images = arrived(Regime(smoothed_at_s=0.0), Traits(prompt_bytes=50_000_000), 256.0).demand
    assert images.prompt_tok_s == MAX_PROMPT_TOKENS / DEMAND_S


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 200_000), st.floats(1.0, 1000.0)), min_size=1, max_size=5),
    st.tuples(st.integers(1, 9), st.integers(0, 900_000), st.floats(1.0, 4096.0)),
    st.floats(0.0, 20.0),
)
def test_what_is_withdrawn_leaves_the_demand_as_if_it_had_never_come(
    others: list[tuple[int, int, float]], refused: tuple[int, int, float], age_s: float
) -> None:
    with_it = without = Regime(smoothed_at_s=0.0)
    for place, (weight, prompt_bytes, tokens) in enumerate([refused, *others]):
        traits = Traits(weight=weight, prompt_bytes=prompt_bytes)
        with_it = arrived(with_it, traits, tokens)
        without = without if place == 0 else arrived(without, traits, tokens)
    traits = Traits(weight=refused[0], prompt_bytes=refused[1])
    left = withdrawn(aged(with_it, age_s), traits, refused[2], 0, age_s=age_s, peak_tok_s=0.0)
    if left.tok_s:  # else what the others asked for is too little beside it to be told apart
        assert left == pytest.approx(aged(without, age_s), rel=1e-6, abs=1e-6)
    else:
        assert without.demand.tok_s < 0.011 * refused[0] * refused[2] / DEMAND_S


def test_of_a_request_that_waited_for_a_minute_next_to_nothing_is_withdrawn() -> None:
    traits, minute = Traits(weight=4, prompt_bytes=4000), 60.0
    late = Demand(200.0, 500.0, 100.0, 6.0, 250.0, 50.0, 180.0, 120.0)
    left = withdrawn(late, traits, 256.0, 0, age_s=minute, peak_tok_s=40.0)
    for before, after in zip(late, left, strict=True):
        assert after == pytest.approx(before, rel=0.05)
    assert left.peak_tok_s < late.peak_tok_s, "yet something is"


def test_what_is_withdrawn_is_taken_from_the_means_too() -> None:
    since_s = 60.0
    demand = Demand(100.0, 0.0, 256.0, 3.0, 400.0, 0.0, 90.0, since_s, flown=2.0)
    left = withdrawn(demand, Traits(weight=2), 256.0, 0, age_s=1.0, peak_tok_s=50.0, unseen_s=0.25)
    faded = exp(-1.0 / DEMAND_S)
    assert left.lasting_tok_s == pytest.approx(90.0 - 512.0 / since_s * faded)
    assert left.held == pytest.approx(3.0 - 2.0 * 0.75 / since_s * faded)
    assert left.flown == pytest.approx(2.0 - 2.0 * 0.25 * faded)
    young = withdrawn(demand._replace(lasted_s=2.0), Traits(weight=2), 256.0, 0, age_s=1.0, peak_tok_s=50.0)
    assert young.lasting_tok_s / 90.0 == pytest.approx(young.tok_s / 100.0)


def test_a_peak_that_others_have_made_since_stays() -> None:
    demand = Demand(100.0, 0.0, 256.0, 0.0, 900.0)
    left = withdrawn(demand, Traits(), 256.0, 0, age_s=2.0, peak_tok_s=50.0)
    assert left.peak_tok_s == pytest.approx(900.0 - 256.0 / DEMAND_S * exp(-2.0 / DEMAND_S))


def test_of_a_demand_that_is_withdrawn_whole_nothing_is_left() -> None:
    traits = Traits(prompt_bytes=4000)
    only = arrived(Regime(smoothed_at_s=0.0, demand=Demand(held=2.0, peak_tok_s=9.0)), traits, 256.0)
    for tokens in (256.0, 256.0 * 1.05, 256.0 * 0.995):  # lengths are expected otherwise by then
        assert withdrawn(only.demand, traits, tokens, 0, age_s=0.0, peak_tok_s=5.0) == Demand(held=2.0, peak_tok_s=5.0)

"""The demand: a steady stream is told at its rate, what is long past fades, and the means are those of who asks."""

from math import exp

import pytest
from fakes.speeds import shipped

from proxy.model import Regime, Traits
from proxy.routing.demand import BYTES_PER_TOKEN, DEMAND_S, MAX_PROMPT_TOKENS, aged, arrived
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

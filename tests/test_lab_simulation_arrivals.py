"""Traffic that is made up: its rate, its bursts, its sizes."""

from itertools import islice, pairwise
from statistics import fmean, pstdev

import pytest

from proxy.lab.simulation.arrivals import NEVER_S, Closed, Gamma, Offer, Sizes, open_source


def _offers(kind: Gamma, rate_per_s: float, count: int, seed: int = 1) -> list[Offer]:
    return list(islice(iter(kind.source(rate_per_s, seed).take, None), count))


@pytest.mark.parametrize("variation", [0.5, 1.0, 3.0])
def test_gaps_have_the_mean_and_the_variation_that_were_asked(variation: float) -> None:
    offers = _offers(Gamma(variation), 2.0, 20_000)
    gaps_s = [after.at_s - before.at_s for before, after in pairwise(offers)]
    assert fmean(gaps_s) == pytest.approx(0.5, rel=0.08)
    assert pstdev(gaps_s) / fmean(gaps_s) == pytest.approx(variation, rel=0.08)


def test_answers_are_exponential_and_prompts_of_one_length() -> None:
    offers = _offers(Gamma(sizes=Sizes(300, 100.0)), 1.0, 20_000)
    tokens = [offer.tokens for offer in offers]
    assert {offer.prompt_tokens for offer in offers} == {300}
    assert fmean(tokens) == pytest.approx(100.0, rel=0.03)
    assert pstdev(tokens) == pytest.approx(100.0, rel=0.05)
    assert min(tokens) == 1
    assert all(0.0 <= offer.step_share < 1.0 for offer in offers)


def test_the_same_seed_gives_the_same_requests() -> None:
    assert _offers(Gamma(3.0), 1.0, 50, seed=4) == _offers(Gamma(3.0), 1.0, 50, seed=4)
    assert _offers(Gamma(3.0), 1.0, 50, seed=4) != _offers(Gamma(3.0), 1.0, 50, seed=5)


def test_twice_the_rate_brings_the_same_requests_in_half_the_time() -> None:
    slow, fast = _offers(Gamma(), 1.0, 50), _offers(Gamma(), 2.0, 50)
    assert [offer.at_s for offer in fast] == pytest.approx([offer.at_s / 2 for offer in slow])
    assert [offer.tokens for offer in fast] == [offer.tokens for offer in slow]


def test_a_closed_loop_asks_again_only_when_an_answer_has_ended() -> None:
    source = Closed(2).source(0.0, 1)
    assert [source.take().at_s, source.take().at_s] == [0.0, 0.0]
    assert source.next_at_s == NEVER_S
    source.ended(3.5, 0)
    assert source.next_at_s == 3.5
    assert source.take().at_s == 3.5


def test_a_source_that_has_no_more_says_so() -> None:
    source = open_source(iter([Offer(1.0, 1, 1)]))
    assert source.take().at_s == 1.0
    assert source.next_at_s == NEVER_S
    with pytest.raises(IndexError):
        source.take()


def test_kinds_are_named_as_on_the_command_line() -> None:
    assert [kind.name for kind in (Gamma(), Gamma(2.5), Closed(8))] == ["poisson", "gamma:2.5", "closed:8"]

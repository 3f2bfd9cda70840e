"""Generated conversations and rates that alternate: who asks when, and what the whole is like."""

from collections import Counter, defaultdict
from heapq import heappop, heappush
from itertools import pairwise
from statistics import fmean, median

import pytest

from proxy.lab.simulation.arrivals import LIKE, Offer, Source
from proxy.lab.simulation.swings import Alternating
from proxy.lab.simulation.turns import MAX_CONTEXT, Turns

ANSWER_S = 5.0


def _answered(source: Source, count: int, answer_s: float = ANSWER_S) -> list[Offer]:
    """Requests in their order, each of which is answered in the same time."""
    offers: list[Offer] = []
    answers: list[tuple[float, int]] = []
    while len(offers) < count:
        if answers and answers[0][0] <= source.next_at_s:
            source.ended(*heappop(answers))
            continue
        offers.append(offer := source.take())
        heappush(answers, (offer.at_s + answer_s, offer.conversation))
    return offers


def _by_conversation(offers: list[Offer]) -> dict[int, list[Offer]]:
    found: dict[int, list[Offer]] = defaultdict(list)
    for offer in offers:
        found[offer.conversation].append(offer)
    return found


def test_a_prompt_has_all_that_was_said_before_and_begins_with_its_blocks() -> None:
    pairs = 0
    for asked in _by_conversation(_answered(Turns(5, 20).source(2.0, 1), 2000)).values():
        for before, after in pairwise(asked):
            pairs += 1
            assert after.prompt_tokens > before.prompt_tokens + before.tokens or after.prompt_tokens == MAX_CONTEXT
            assert after.blocks[: len(before.blocks)] == before.blocks
            assert len(after.blocks) == after.prompt_tokens // 512
    assert pairs > 1000


def test_the_next_question_comes_only_after_the_answer() -> None:
    offers = _answered(Turns(5, 20).source(2.0, 1), 1500, answer_s=30.0)
    gaps = [b.at_s - a.at_s for asked in _by_conversation(offers).values() for a, b in pairwise(asked)]
    assert min(gaps) > 30.0
    # Half of all gaps are longer, but of those the run does not see the longest.
    assert median(gaps) - 30.0 == pytest.approx(20.0, rel=0.2)


@pytest.mark.parametrize("turns", [Turns(), Turns(5, 30)])
def test_requests_come_at_the_rate_asked_from_the_beginning(turns: Turns) -> None:
    offers = _answered(turns.source(3.0, 1), 9000)
    assert len(offers) / offers[-1].at_s == pytest.approx(3.0, rel=0.06)
    assert sum(offer.at_s < 300.0 for offer in offers) == pytest.approx(900, rel=0.15)
    first = {number: asked[0] for number, asked in _by_conversation(offers).items()}
    assert len(offers) / len(first) == pytest.approx(turns.mean_turns, rel=0.15)


def test_the_same_seed_asks_the_same_whenever_it_is_answered() -> None:
    quick, slow = (_by_conversation(_answered(Turns(3, 20).source(2.0, 1), 2000, answer_s)) for answer_s in (1.0, 40.0))
    compared = 0
    for number, asked in quick.items():
        for one, other in zip(asked, slow.get(number, []), strict=False):
            compared += 1
            assert (one.prompt_tokens, one.tokens, one.blocks) == (other.prompt_tokens, other.tokens, other.blocks)
    assert compared > 1500


def test_generated_conversations_are_like_the_published_trace() -> None:
    offers = _answered(Turns().source(3.4, 1), 12_000)
    prompts = sorted(offer.prompt_tokens for offer in offers)
    # Of the trace: 6909 and 27367 tokens; answers of 343; 37 % of all blocks were there before, 33 % follow another.
    assert prompts[6000] == pytest.approx(6909, rel=0.08)
    assert prompts[10_800] == pytest.approx(27_367, rel=0.08)
    assert fmean(offer.tokens for offer in offers) == pytest.approx(343, rel=0.03)
    assert _hit_share(offers) == pytest.approx(0.37, abs=0.06)
    follow = len(offers) - len({offer.conversation for offer in offers})
    assert follow / len(offers) == pytest.approx(0.33, abs=0.03)


def test_the_means_of_a_kind_are_those_of_its_requests() -> None:
    offers = _answered(Turns(5, 30).source(3.0, 2), 8000)
    means = Turns(5, 30).means
    assert means.output == pytest.approx(fmean(offer.tokens for offer in offers), rel=0.05)
    new = sum(offer.prompt_tokens for offer in offers) * (1.0 - _hit_share(offers)) / len(offers)
    assert means.prompt == pytest.approx(new, rel=0.15)


@pytest.mark.parametrize(
    ("name", "prompt", "output"), [("code", (1469, 2048), (13, 27.9)), ("chat", (1020, 1155), (129, 211))]
)
def test_code_and_chat_are_like_the_published_traces(
    name: str, prompt: tuple[float, float], output: tuple[float, float]
) -> None:
    source = LIKE[name].source(3.0, 1)
    offers = [source.take() for _ in range(20_000)]
    for seen, (middle, mean) in (([o.prompt_tokens for o in offers], prompt), ([o.tokens for o in offers], output)):
        assert median(seen) == pytest.approx(middle, rel=0.05)
        assert fmean(seen) == pytest.approx(mean, rel=0.12)
    assert LIKE[name].means.output == pytest.approx(fmean(offer.tokens for offer in offers), rel=0.03)


def test_alternating_traffic_has_its_two_rates_in_turn() -> None:
    kind = Alternating(0.1, 0.5, 200.0)
    source = kind.source(3.0, 1)  # the mean: a full load is ten a second
    offers = [source.take() for _ in range(20_000)]
    phases = Counter(int(offer.at_s // 200.0) for offer in offers)
    last = max(phases)
    assert fmean(phases[n] for n in range(0, last, 2)) == pytest.approx(200, rel=0.1)
    assert fmean(phases[n] for n in range(1, last, 2)) == pytest.approx(1000, rel=0.05)


def _hit_share(offers: list[Offer]) -> float:
    seen, held, whole = set[int](), 0, 0.0
    for offer in offers:
        held += next((at for at, block in enumerate(offer.blocks) if block not in seen), len(offer.blocks))
        whole += offer.prompt_tokens / 512
        seen.update(offer.blocks)
    return held / whole

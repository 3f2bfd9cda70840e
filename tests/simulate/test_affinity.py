"""Conversations in simulation: kept where they are cached they are served as well as by the best that never moves one,
and several times better than by the same policy blind to caches. scripts/prove_affinity does it for all cells."""

from collections.abc import Iterator
from functools import cache
from itertools import islice, pairwise

import pytest
from simulate.affinity import Cell, Found, compare
from simulate.conversations import AGENTS, CHATS, SYSTEM_TOKENS, Conversations, Habit

from proxy.lab.simulation.arrivals import Offer

# Requests by curve: as many as it takes until those queue who compute prompts twice.
CURVES = {"rtx6kpro_kimi26_v1_dcp1_ctx10k": 600, "specdecodebench_sglang_qwen3-8b_gsm8k_tree_k21": 1200}
# Where prompts computed twice are more than both engines can take in.
HIGH_LOAD = 0.7


@cache
def found(curve: str) -> Found:
    return compare(Cell(curve, "agents", HIGH_LOAD, requests=CURVES[curve], seeds=1))


@pytest.mark.parametrize("curve", CURVES)
def test_what_is_cached_decides_as_well_as_the_best_that_never_moves_a_conversation(curve: str) -> None:
    assert found(curve).ways_s["marginal"] <= 1.05 * found(curve).best_s


@pytest.mark.parametrize("curve", CURVES)
def test_a_policy_blind_to_caches_takes_several_times_as_long(curve: str) -> None:
    ways_s = found(curve).ways_s
    assert ways_s["marginal blind"] >= 3.0 * ways_s["marginal"]


# ---------------------------------------------------------------- the traffic itself


def offers(habit: Habit) -> list[Offer]:
    source = Conversations(habit).source(1.0, seed=1)
    return [source.take() for _ in range(6000)]


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[int(share * len(values))]


def turns(habit: Habit) -> Iterator[list[Offer]]:
    """The requests of each conversation."""
    by_name: dict[int, list[Offer]] = {}
    for offer in offers(habit):
        by_name.setdefault(offer.conversation, []).append(offer)
    yield from by_name.values()


def test_chats_are_like_recorded_ones() -> None:
    spoken = list(turns(CHATS))
    firsts = [float(each[0].prompt_tokens) for each in spoken]
    later = 1.0 - len(spoken) / sum(map(len, spoken))
    assert 0.33 <= later <= 0.43
    assert percentile(firsts, 0.5) == pytest.approx(5226 + SYSTEM_TOKENS, rel=0.15)
    assert percentile(firsts, 0.9) == pytest.approx(25_526, rel=0.2)
    answers = [float(offer.tokens) for each in spoken for offer in each]
    assert sum(answers) / len(answers) == pytest.approx(343, rel=0.1)


@pytest.mark.parametrize("habit", [CHATS, AGENTS])
def test_each_turn_begins_with_the_blocks_of_the_one_before(habit: Habit) -> None:
    for spoken in islice(turns(habit), 200):
        for before, after in pairwise(spoken):
            assert after.blocks[: len(before.blocks)] == before.blocks
            assert after.prompt_tokens > before.prompt_tokens + before.tokens
            assert after.at_s >= before.at_s


def test_the_rate_is_as_asked() -> None:
    source = Conversations(AGENTS).source(5.0, seed=3)
    last = [source.take().at_s for _ in range(6000)][-1]
    assert 6000 / last == pytest.approx(5.0, rel=0.1)

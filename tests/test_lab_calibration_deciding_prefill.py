"""How fast prompts are taken in: what pairs of them say, on engines whose truth is known, and over real sockets."""

import asyncio
import random
from collections.abc import Mapping
from dataclasses import replace

import pytest
from fakes.calibrated import findings, of_curve
from fakes.leaping import leaping
from test_lab_calibration_stand_http import STEADY, bench

from proxy.lab import curves
from proxy.lab.calibration.campaign import Campaign
from proxy.lab.calibration.deciding.aim import Aim
from proxy.lab.calibration.deciding.findings import conclude
from proxy.lab.calibration.deciding.prefill import lengths, prefill
from proxy.lab.calibration.report import markdown, page
from proxy.lab.calibration.report.curves_yaml import curves_of
from proxy.lab.calibration.report.told import tell
from proxy.lab.calibration.values import Arm, ArmFacts, FirstToken, Prefill
from proxy.lab.calibration.virtual.stand import VirtualStand
from proxy.model import Role

AIM = Aim(concurrencies=(1, 4), contexts=(1024, 8192), budget_s=60.0)


def _found(tok_s: float, *, rest_s: float = 0.05, scatter_s: float = 0.0, pairs: int = 6) -> Prefill | None:
    """An engine that takes in so many tokens a second after a rest, and scatters."""
    rng = random.Random(1)

    def one(tokens: int) -> FirstToken:
        return FirstToken(tokens, rest_s + tokens / tok_s + rng.gauss(0.0, scatter_s))

    return prefill(Arm.BASELINE, 1024, [(one(512), one(2048)) for _ in range(pairs)])


def test_what_no_prompt_changes_is_not_in_the_speed() -> None:
    for rest_s in (0.0, 0.05, 2.0):
        found = _found(8000.0, rest_s=rest_s)
        assert found is not None
        assert found.tok_s == pytest.approx(8000.0)


def test_the_interval_widens_with_the_scatter_and_needs_three_pairs() -> None:
    calm, rough = _found(8000.0, scatter_s=0.002), _found(8000.0, scatter_s=0.02)
    assert calm is not None and rough is not None
    assert calm.low is not None and calm.high is not None and rough.low is not None and rough.high is not None
    assert rough.high - rough.low > 3 * (calm.high - calm.low)
    few = _found(8000.0, pairs=2)
    assert few is not None
    assert (few.low, few.high, few.pairs) == (None, None, 2)


def test_what_drowns_in_noise_is_not_told() -> None:
    assert _found(1e6, scatter_s=0.1) is None
    assert prefill(Arm.BASELINE, 1024, []) is None


def test_prompts_are_as_long_as_the_bucket_s_context_but_never_too_short_to_tell() -> None:
    assert lengths(32_768) == (8192, 32_768)
    assert lengths(64)[1] >= 4 * lengths(64)[0] > 0
    assert lengths(1024, 8192) == lengths(1024)


class Small(VirtualStand):
    """A stand whose engines take 2,048 tokens, and refuse what is longer as engines do: by no first token."""

    async def facts(self) -> Mapping[Arm, ArmFacts]:
        told = await super().facts()
        return {arm: replace(one, flags={"slot_context": "2048"}) for arm, one in told.items()}

    async def first_token(self, arm: Arm, prompt_tokens: int) -> FirstToken | None:
        # Questions come out a little longer than they were asked for.
        return await super().first_token(arm, prompt_tokens) if 1.03 * prompt_tokens < 2048 else None


async def test_prompts_fit_into_an_engine_that_takes_little() -> None:
    stand = Small(curves.find("seed"), 1)
    campaign = Campaign(replace(AIM, contexts=(128,)), stand, await stand.facts())
    assert {one.arm for one in await campaign._measured_prefills()} == {Arm.SPECULATIVE, Arm.BASELINE}


@pytest.mark.parametrize("name", ["seed", "rtx6kpro_glm51_dcp4_ctx0", "h200_llama8b_sglang_tree_2_4_16"])
def test_the_truth_lies_in_the_intervals_and_costs_less_than_a_minute(name: str) -> None:
    inside, found = 0, []
    for seed in range(10):
        stand = VirtualStand(curves.find(name), seed)
        campaign = Campaign(AIM, stand, {})
        found = asyncio.run(campaign._measured_prefills())
        assert stand.now_s() < 60.0
        assert [(one.arm, one.context_tokens) for one in found] == [
            (arm, context) for arm in AIM.arms for context in AIM.contexts
        ]
        truth = stand.true_prefill_tok_s
        inside += sum((one.low or 0.0) <= truth <= (one.high or 0.0) for one in found)
        assert all(one.tok_s == pytest.approx(truth, rel=0.1) for one in found)
    assert inside >= 34  # of 40; 38 are to be expected


class Slow(VirtualStand):
    """A stand whose engines take a hundred tokens in a second, as on a processor."""

    asked: list[int]

    async def first_token(self, arm: Arm, prompt_tokens: int) -> FirstToken | None:
        self.asked = [*getattr(self, "asked", []), prompt_tokens]
        return FirstToken(prompt_tokens, 0.05 + prompt_tokens / 100.0)


async def test_a_slow_engine_is_asked_short_prompts_unless_the_bucket_is_long() -> None:
    for context, longest in ((128, 512), (512, 512), (1024, 2048), (8192, 8192)):
        stand = Slow(curves.find("seed"), 1)
        (one, other) = await Campaign(replace(AIM, contexts=(context,)), stand, {})._measured_prefills()
        assert one.tok_s == other.tok_s == pytest.approx(100.0)
        assert max(stand.asked) == longest


class Silent(VirtualStand):
    """A stand whose speculative engine streams nothing."""

    async def first_token(self, arm: Arm, prompt_tokens: int) -> FirstToken | None:
        return None if arm is Arm.SPECULATIVE else await super().first_token(arm, prompt_tokens)


async def test_an_engine_of_which_no_first_token_is_seen_is_left_out_and_told() -> None:
    stand = Silent(curves.find("seed"), 1)
    facts = await stand.facts()
    campaign = Campaign(AIM, stand, facts)
    await campaign.carry_out(lambda _: None)
    found = conclude(AIM, facts, campaign.measurements, measured_at="x", spent_s=1.0, prefills=campaign.prefills)
    assert {one.arm for one in found.prefills} == {Arm.BASELINE}
    assert any("prefill of speculative could not be measured" in note for note in found.notes)
    written = curves_of(found)
    assert written is not None
    assert all(one.prefill_tok_s[0] is None and one.prefill_tok_s[1] for one in written.contexts)


def test_what_was_found_stands_in_the_page_the_text_and_the_file() -> None:
    context = of_curve("seed")
    tokens = context.condition.context_tokens
    known = [
        Prefill(Arm.SPECULATIVE, tokens, 7654.3, 7600.0, 7700.0, 6),
        Prefill(Arm.BASELINE, tokens, 8123.0, None, None, 2),
    ]
    found = replace(findings(context), prefills=tuple(known))
    written = curves_of(found)
    assert written is not None
    assert written.contexts[0].prefill_tok_s == (7654.3, 8123.0)
    for text in (markdown.render(found, tell(found)), page.render(found, tell(found), {})):
        assert "7654 (7600 to 7700)" in text
        assert "8123" in text


@pytest.mark.parametrize("role", list(Role))
@leaping
async def test_over_sockets_the_engine_s_own_speed_is_found(role: Role) -> None:
    async with bench(replace(STEADY, role=role)) as one:
        pairs = []
        for _ in range(6):
            short, long = [await one.stand.first_token(one.arm, tokens) for tokens in lengths(1024)]
            assert short is not None and long is not None
            pairs.append((short, long))
        cached = one.engine.books().cached_tokens
    found = prefill(one.arm, 1024, pairs)
    assert cached == 0, "no prompt begins like another"
    assert found is not None
    assert found.tok_s == pytest.approx(one.engine.curve.prefill_tokens_per_s, rel=0.02)

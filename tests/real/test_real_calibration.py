"""Calibration measures a real engine by the engine's own count of every token."""

import asyncio

from real.conftest import SLOTS

from proxy.lab.calibration.stand.http import ArmTarget, Patience, open_stand
from proxy.lab.calibration.values import Arm, Cell, Condition, Prefix, Source, Span
from proxy.lab.prompts import PromptKind
from proxy.protocol.routes import EngineKind
from scripts.real_pair import Pair

# So long that no answer ends within the window: the next prompt would be read meanwhile, and nobody gain a token.
LONG = Condition(context_tokens=60, prompts=PromptKind.PROSE, prefix=Prefix.COLD, max_tokens=100)
# A machine that is busy reads a prompt in a minute.
PATIENT = Patience(stalled_s=90.0)


async def test_cells_of_a_real_pair_are_counted_by_each_token_and_told_from_each_other(pair: Pair) -> None:
    targets = {Arm(role): ArmTarget(url, EngineKind.LLAMACPP) for role, url in pair.urls.items()}
    async with open_stand(targets, patience=PATIENT, clock=asyncio.get_running_loop().time) as stand:
        facts = await stand.facts()
        assert (facts[Arm.SPECULATIVE].speculative_algorithm, facts[Arm.BASELINE].speculative_algorithm) == (
            "unnamed",
            None,
        )
        assert {one.max_running_requests for one in facts.values()} == {SLOTS}
        for arm in (Arm.SPECULATIVE, Arm.BASELINE):
            got = await stand.measure(Cell(LONG, 2, arm, 0), Span(0.2, 1.5))
            assert (got.source, got.errors, got.disturbed) == (Source.USAGE, {}, False)
            assert got.tokens > 0

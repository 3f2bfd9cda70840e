"""One calibration of a virtual pair of engines, held against what is true of their curve.

Sums of many are in tallies.py.
"""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from simulate.truths import NO_LIMIT, Change, Truth, truth_of, whole_numbers

from proxy.lab import curves
from proxy.lab.calibration.campaign import Campaign
from proxy.lab.calibration.deciding.aim import DEFAULT_BUDGET_S, DEFAULT_CONCURRENCIES, Aim
from proxy.lab.calibration.deciding.findings import conclude
from proxy.lab.calibration.values import Arm, ContextFindings
from proxy.lab.calibration.virtual.stand import VirtualStand
from proxy.lab.curves import Curve
from proxy.lab.prompts import PromptKind
from proxy.routing.verdict import Crossing, VerdictKind


@dataclass(frozen=True, slots=True)
class Trial:
    """What is tried. `options` go to the stand."""

    curve: str
    seed: int
    budget_s: float = DEFAULT_BUDGET_S
    quick: bool = False
    max_tokens: int = 256
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came out. `errors` are estimate / truth - 1 at every concurrency that was measured without a queue.

    `covered` says for each true change whether an interval of the right direction holds a point at which the two are
    equally fast, `widths` how wide that interval is (ln of high / low). `stray` counts crossings found where there is
    none; `held` and `contrasts` how many intervals of a ratio hold the true one. `prefill_errors` are estimate / truth
    - 1 of how fast prompts are taken in, and `prefill_held` how many of their intervals hold the truth.
    """

    trial: Trial
    kind: VerdictKind
    crossings: tuple[Crossing, ...]
    covered: tuple[bool, ...]
    widths: tuple[float, ...]
    stray: int
    errors: dict[Arm, tuple[float, ...]]
    held: int
    contrasts: int
    cells: int
    spent_s: float
    prefill_errors: tuple[float, ...]
    prefill_held: int
    right: bool
    honest: bool


def tried(trial: Trial) -> Outcome:
    """Run a campaign to its end and judge what it says."""
    curve = found_curve(trial.curve)
    stand = VirtualStand(curve, trial.seed, **{"limits": NO_LIMIT, **trial.options})
    aim = aim_for(curve, trial)
    campaign = asyncio.run(_carried_out(aim, stand))
    facts = asyncio.run(stand.facts())
    found = conclude(aim, facts, campaign.measurements, measured_at="", spent_s=campaign.spent_s).main[0]
    return _judged(trial, stand, found, campaign)


@cache
def found_curve(name: str) -> Curve:
    """A curve by its name or path, read once."""
    return curves.find(name)


@cache
def known_truth(name: str, top: int) -> Truth:
    """What is true of it up to a concurrency, worked out once."""
    return truth_of(found_curve(name), top)


def aim_for(curve: Curve, trial: Trial) -> Aim:
    """The default aim, on the concurrencies that the curve's points span and on one condition alone."""
    inside = whole_numbers(curve)
    levels = sorted({*(level for level in DEFAULT_CONCURRENCIES if level in inside), inside[-1]})
    return Aim(
        tuple(levels),
        prompts=(PromptKind.MIXED,),
        budget_s=trial.budget_s,
        max_tokens=trial.max_tokens,
        quick=trial.quick,
    )


async def _carried_out(aim: Aim, stand: VirtualStand) -> Campaign:
    campaign = Campaign(aim, stand, await stand.facts())
    await campaign.carry_out(lambda _: None)
    return campaign


def _judged(trial: Trial, stand: VirtualStand, found: ContextFindings, campaign: Campaign) -> Outcome:
    truth = known_truth(trial.curve, int(found.contrasts[-1].concurrency))
    crossings = found.verdict.crossings
    holders = [_holder(change, crossings) for change in truth.changes]
    intervals = [one for one in found.contrasts if not one.queued and math.isfinite(one.low)]
    return Outcome(
        trial=trial,
        kind=found.verdict.kind,
        crossings=crossings,
        covered=tuple(holder is not None for holder in holders),
        widths=tuple(math.log(holder.high / holder.low) for holder in holders if holder is not None),
        stray=sum(not any(one.low <= zero <= one.high for zero in truth.zeros) for one in crossings),
        errors={arm: _errors(stand, arm, found) for arm in (Arm.SPECULATIVE, Arm.BASELINE)},
        held=sum(one.low <= truth.ratios[int(one.concurrency)] <= one.high for one in intervals),
        contrasts=len(intervals),
        cells=len(campaign.measurements),
        spent_s=campaign.spent_s,
        prefill_errors=tuple(one.tok_s / stand.true_prefill_tok_s - 1.0 for one in campaign.prefills),
        prefill_held=sum(
            (one.low or 0.0) <= stand.true_prefill_tok_s <= (one.high or 0.0) for one in campaign.prefills
        ),
        right=found.verdict.kind is truth.kind,
        honest=found.verdict.kind in truth.honest,
    )


def _holder(change: Change, crossings: Sequence[Crossing]) -> Crossing | None:
    for one in crossings:
        if one.faster_above is change.faster_above and any(one.low <= zero <= one.high for zero in change.zeros):
            return one
    return None


def _errors(stand: VirtualStand, arm: Arm, found: ContextFindings) -> tuple[float, ...]:
    return tuple(
        point.tok_s / stand.true_tok_s(arm, point.concurrency) - 1.0 for point in found.curves[arm] if not point.queued
    )

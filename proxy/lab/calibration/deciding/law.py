"""Predicts the speculative curve from the baseline's and two probes, for quick runs. Nothing is measured here.

A speculative step passes V tokens for each sequence through the same weights as a baseline step passes one, and drafts
them first. So with T(n) the baseline's step time over n sequences, tau the tokens gained in a step and d the drafting,

    X_spec(b) = tau * b / (T(V * b) + d)

which holds for short contexts; a wide tree's verification may cost less than V separate sequences, since its branches
share their context. Therefore V is taken as the engine says it only while the probes agree (d would not be negative);
else the width that explains both probes best takes its place. On 59 published curves with a known V the law is off by
6.5 % in the median and names the faster arm in 232 of 258 cells (`crossover curves fit NAME` shows one).
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from proxy.routing.curves import SpeedCurve

# Half the interval of ln(ratio) that a predicted speed is given: three times the law's median error.
PREDICTED_HALF_WIDTH = 0.2

# What drafting costs, as a share of the baseline's step of one sequence, where the tokens gained in a step are not told
# and have to be found from the probes: typical for heads that are small beside the model.
DRAFT_SHARE = 0.15

# Verified tokens where the engine does not tell: a chain of three drafts and the token that is certain.
DEFAULT_WIDTH = 4

_STEPS = 120


class Probe(NamedTuple):
    """The speculative arm measured at one concurrency, output tok/s."""

    concurrency: float
    tok_s: float


class Law(NamedTuple):
    """The law with its two constants: `width` (V, effective) and `draft_s` (d, seconds)."""

    baseline: SpeedCurve
    tokens_per_step: float
    width: float
    draft_s: float

    def tok_s(self, concurrency: float) -> float:
        """Predicted speed of the speculative arm, output tok/s."""
        step_s = self.baseline.seconds_per_token(self.width * concurrency) + self.draft_s
        return self.tokens_per_step * concurrency / step_s


def fit(baseline: SpeedCurve, probes: Sequence[Probe], tokens_per_step: float | None, width: int | None) -> Law:
    """The law through probes (at least one); `tokens_per_step` and `width` as the engine tells them, or None."""
    widest = max(1.0, float(width or DEFAULT_WIDTH))
    if tokens_per_step is None:
        return _by_speed(baseline, probes, widest)
    tau = tokens_per_step
    told = _residues(baseline, probes, tau, widest)
    if min(told) >= 0.0:
        return Law(baseline, tau, widest, sum(told) / len(told))
    widths = [math.pow(widest, place / _STEPS) for place in range(_STEPS + 1)]
    return min((_through(baseline, probes, tau, one) for one in widths), key=lambda law: _misfit(law, probes))


def _by_speed(baseline: SpeedCurve, probes: Sequence[Probe], width: float) -> Law:
    """The law where nobody tells what a step gains: drafting is assumed, and the gain is what the probes then take."""
    draft_s = DRAFT_SHARE * baseline.seconds_per_token(1)
    steps = [baseline.seconds_per_token(width * probe.concurrency) + draft_s for probe in probes]
    gains = [math.log(probe.tok_s * step / probe.concurrency) for probe, step in zip(probes, steps, strict=True)]
    return Law(baseline, math.exp(sum(gains) / len(gains)), width, draft_s)


def _residues(baseline: SpeedCurve, probes: Sequence[Probe], tau: float, width: float) -> list[float]:
    """What each probe's step takes beyond the pass over the verified tokens, seconds."""
    return [
        tau * probe.concurrency / probe.tok_s - baseline.seconds_per_token(width * probe.concurrency)
        for probe in probes
    ]


def _through(baseline: SpeedCurve, probes: Sequence[Probe], tau: float, width: float) -> Law:
    residues = _residues(baseline, probes, tau, width)
    return Law(baseline, tau, width, max(0.0, sum(residues) / len(residues)))


def _misfit(law: Law, probes: Sequence[Probe]) -> float:
    return sum(math.log(law.tok_s(probe.concurrency) / probe.tok_s) ** 2 for probe in probes)

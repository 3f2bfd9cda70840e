"""How well the speculation law foretells a published curve: one role's curve and two probes of the other give the rest.

The law follows from the step time formula by leaving the step time out: a speculative step over b sequences costs what
a plain step over V b does, and drafting on top. A fit of all parameters is in fitting.py.
"""

import math
from dataclasses import dataclass
from statistics import median

from proxy.lab.curve import DEAD_BAND
from proxy.lab.curves import Curve
from proxy.model import Role

# What drafting costs, as a share of a plain step of one sequence: typical for heads that are small beside the model.
DRAFT_SHARE = 0.15

# Speculative points that are looked at; the rest is foretold.
PROBES = 2


@dataclass(frozen=True, slots=True)
class LawCheck:
    """What came of it, errors as shares: `winners_right` of `winners` cells were called right, near-ties not asked.

    `tau` is the accepted length that the probes tell, and `outside` the number of cells whose V b lies beyond what
    the baseline was measured at.
    """

    tau: float
    median_error: float
    greatest_error: float
    winners_right: int
    winners: int
    outside: int


def check_law(curve: Curve) -> LawCheck | None:
    """Foretell all points beyond the first two. None for too few points, and for mere ratios."""
    if len(curve.points) <= PROBES or curve.assumed_baseline:
        return None
    verified, time = curve.draft_tokens, curve.step_time(Role.BASELINE)
    drafting_ms = DRAFT_SHARE * time.step_ms(1, 0.0)

    def step_ms(batch: float) -> float:
        return time.step_ms(verified * batch, 0.0) + drafting_ms

    probes, rest = curve.points[:PROBES], curve.points[PROBES:]
    logs = [math.log(p.speculative * step_ms(p.concurrency) / (1000.0 * p.concurrency)) for p in probes]
    tau = math.exp(sum(logs) / len(logs))
    told = [1000.0 * tau * point.concurrency / step_ms(point.concurrency) for point in rest]
    errors = [abs(speed / point.speculative - 1.0) for speed, point in zip(told, rest, strict=True)]
    asked = [
        (speed > point.baseline) == (point.speculative > point.baseline)
        for speed, point in zip(told, rest, strict=True)
        if abs(math.log(point.speculative / point.baseline)) > math.log1p(DEAD_BAND)
    ]
    last = curve.speeds(Role.BASELINE)[-1].concurrency
    outside = sum(verified * point.concurrency > last for point in rest)
    return LawCheck(tau, median(errors), max(errors), sum(asked), len(asked), outside)

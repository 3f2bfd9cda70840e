"""How well the speculation law foretells a published curve: one role's curve and two probes of the other give the rest.

The law itself is calibration/deciding/law.py, as quick calibrations use it. A fit of all parameters is in fitting.py.
"""

import math
from dataclasses import dataclass
from statistics import median

from proxy.lab.calibration.deciding.law import Probe, fit
from proxy.lab.curve import DEAD_BAND
from proxy.lab.curves import Curve
from proxy.model import Role
from proxy.routing.curves import SpeedCurve, SpeedPoint

# Speculative points that are looked at; the rest is foretold.
PROBES = 2


@dataclass(frozen=True, slots=True)
class LawCheck:
    """What came of it, errors as shares: `winners_right` of `winners` cells were called right, near-ties not asked.

    `tau` is the number of tokens gained in a step that the law took, told or found from the probes; `outside` counts
    cells whose width times concurrency lies beyond what the baseline was measured at.
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
    probes, rest = curve.points[:PROBES], curve.points[PROBES:]
    baseline = SpeedCurve(tuple(SpeedPoint(one.concurrency, one.tok_s) for one in curve.speeds(Role.BASELINE)))
    law = fit(
        baseline,
        [Probe(one.concurrency, one.speculative) for one in probes],
        curve.accept_length,
        curve.draft_tokens,
    )
    told = [law.tok_s(point.concurrency) for point in rest]
    errors = [abs(speed / point.speculative - 1.0) for speed, point in zip(told, rest, strict=True)]
    asked = [
        (speed > point.baseline) == (point.speculative > point.baseline)
        for speed, point in zip(told, rest, strict=True)
        if abs(math.log(point.speculative / point.baseline)) > math.log1p(DEAD_BAND)
    ]
    last = curve.speeds(Role.BASELINE)[-1].concurrency
    outside = sum(law.width * point.concurrency > last for point in rest)
    return LawCheck(law.tokens_per_step, median(errors), max(errors), sum(asked), len(asked), outside)

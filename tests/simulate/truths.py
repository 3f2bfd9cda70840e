"""What is true of a curve: where its arms change places, and what an honest verdict may say.

How it is found out is in trials.py.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from proxy.lab.calibration.values import Arm
from proxy.lab.calibration.virtual.stand import VirtualStand
from proxy.lab.curves import Curve
from proxy.model import Role
from proxy.routing.verdict import VerdictKind

# Arms closer than this, in ln of speed, are tied: no calibration within an hour is asked to tell them apart.
DEAD_BAND = 0.03

# Running sequences at most, so that nothing queues: what is proved is the estimate, not the admission.
NO_LIMIT = dict.fromkeys(Arm, 4096)


class Change(NamedTuple):
    """One change of leader by more than the dead band: it happens from `low` to `high`, at all of `zeros`."""

    low: float
    high: float
    zeros: tuple[float, ...]
    faster_above: Role


@dataclass(frozen=True, slots=True)
class Truth:
    """`kind` is what a perfect calibration says, with the dead band; `honest` what may be said without being wrong.

    `zeros` are all points at which the two are equally fast, however little they differ around them.
    """

    kind: VerdictKind
    honest: frozenset[VerdictKind]
    changes: tuple[Change, ...]
    zeros: tuple[float, ...]
    ratios: dict[int, float]


def truth_of(curve: Curve, top: int) -> Truth:
    """What the engine model's speeds, log-linear between the curve's points, say at every whole number up to `top`."""
    stand = VirtualStand(curve, 0, limits=NO_LIMIT)
    ratios = {n: _log_ratio(stand, n) for n in whole_numbers(curve) if n <= top}
    zeros = tuple(_zeros(list(ratios.items())))
    clear = [(n, ratio) for n, ratio in ratios.items() if abs(ratio) > DEAD_BAND]
    changes = tuple(_changes(clear, zeros))
    kind = _kind([ratio for _, ratio in clear])
    return Truth(kind, _honest(kind, list(ratios.values())), changes, zeros, ratios)


def whole_numbers(curve: Curve) -> range:
    """The concurrencies within a curve's points."""
    return range(math.ceil(curve.points[0].concurrency), math.floor(curve.points[-1].concurrency) + 1)


def _log_ratio(stand: VirtualStand, n: int) -> float:
    return math.log(stand.true_tok_s(Arm.SPECULATIVE, n) / stand.true_tok_s(Arm.BASELINE, n))


def _zeros(points: Sequence[tuple[int, float]]) -> Iterator[float]:
    for (left, lead), (right, lag) in pairwise(points):
        if (lead > 0.0) != (lag > 0.0):
            yield left * math.pow(right / left, lead / (lead - lag))


def _changes(clear: Sequence[tuple[int, float]], zeros: Sequence[float]) -> Iterator[Change]:
    for (left, lead), (right, lag) in pairwise(clear):
        if (lead > 0.0) != (lag > 0.0):
            inside = tuple(zero for zero in zeros if left <= zero <= right)
            yield Change(left, right, inside, Role.BASELINE if lag < 0.0 else Role.SPECULATIVE)


def _kind(clear: Sequence[float]) -> VerdictKind:
    if not clear:
        return VerdictKind.UNKNOWN
    if min(clear) < 0.0 < max(clear):
        return VerdictKind.CROSSOVER_AT
    return VerdictKind.ALWAYS_SPECULATE if clear[0] > 0.0 else VerdictKind.NEVER_SPECULATE


def _honest(kind: VerdictKind, ratios: Sequence[float]) -> frozenset[VerdictKind]:
    """Not to know is never wrong; a change of leader within the dead band may be told, and need not be."""
    if min(ratios) < 0.0 < max(ratios):
        return frozenset((kind, VerdictKind.UNKNOWN, VerdictKind.CROSSOVER_AT))
    one_sided = VerdictKind.ALWAYS_SPECULATE if ratios[0] > 0.0 else VerdictKind.NEVER_SPECULATE
    return frozenset((kind, VerdictKind.UNKNOWN, one_sided))

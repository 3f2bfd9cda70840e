"""How far a difference between two ways can be believed: from request times to differences with their intervals.

All ways got the same requests at the same instants, so they are compared within blocks of time, and the blocks are
drawn anew with replacement: requests near each other share engines and are no independent sample, blocks nearly are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import expm1
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# A block is at least so many mean requests long, so that few requests are in two of them. More of them than the most
# change nothing, and fewer than the least give no interval: their spread is itself a guess.
BLOCK_REQUESTS, MAX_BLOCKS, MIN_BLOCKS = 5.0, 60, 10
CONFIDENCE = 0.95
RESAMPLES = 2000

Floats = NDArray[np.float64]


class Difference(NamedTuple):
    """By how much a way's mean is above the present one's, as a share of that, with its 95 % interval; None where the
    log is too short to tell. The intervals of all ways hold at once."""

    share: float
    low: float | None = None
    high: float | None = None

    @property
    def sure(self) -> bool:
        """Whether it is more than noise."""
        return self.low is not None and self.high is not None and not self.low <= 0.0 <= self.high

    @property
    def half_width(self) -> float | None:
        """Half of the interval."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2


@dataclass(frozen=True, slots=True)
class Blocks:
    """Sums over each block of time: of the times of requests, a row for each way, and how many requests there are."""

    sums: Floats
    counts: Floats
    length_s: float

    @property
    def enough(self) -> bool:
        """Whether there are enough for an interval."""
        return len(self.counts) >= MIN_BLOCKS


def blocks(at_s: Sequence[float], times: Sequence[Sequence[float]], mean_e2e_s: float) -> Blocks:
    """The blocks of requests that came at these instants and took these times, a row for each way. Blocks in which
    nothing came are none."""
    came, taken = np.asarray(at_s, dtype=float), np.asarray(times, dtype=float)
    span_s = float(came[-1] - came[0])
    count = int(min(MAX_BLOCKS, max(1.0, span_s // max(BLOCK_REQUESTS * mean_e2e_s, 1e-9))))
    length_s = span_s / count
    place = np.minimum(((came - came[0]) / max(length_s, 1e-9)).astype(int), count - 1)
    counts = np.bincount(place, minlength=count).astype(float)
    sums = np.array([np.bincount(place, weights=row, minlength=count) for row in taken], dtype=float)
    filled = counts > 0
    return Blocks(sums[:, filled], counts[filled], length_s)


def differences(found: Blocks, against: int, resamples: int = RESAMPLES, seed: int = 1) -> list[Difference]:
    """Each way against the one in row `against`, whose own is 0.

    The widest spread decides for all: an interval is so wide that in 95 of 100 logs like this all hold together,
    because the best of many is chosen by them.
    """
    whole = np.log(found.sums.sum(axis=1))
    ratios = whole - whole[against]
    if not found.enough:
        return [Difference(expm1(ratio)) for ratio in ratios]
    drawn = _drawn(found, resamples, seed)
    errors = drawn - drawn[:, [against]] - ratios
    spread = errors.std(axis=0, ddof=1)
    moved = spread > 1e-12
    factor = _factor(errors[:, moved] / spread[moved], len(found.counts)) if moved.any() else 0.0
    half = factor * spread
    return [
        Difference(expm1(ratio), expm1(ratio - width), expm1(ratio + width))
        for ratio, width in zip(ratios, half, strict=True)
    ]


def _drawn(found: Blocks, resamples: int, seed: int) -> Floats:
    """ln of the sums over blocks drawn with replacement: a row for each drawing, a column for each way."""
    count = len(found.counts)
    weights = np.random.default_rng(seed).multinomial(count, [1.0 / count] * count, size=resamples)
    return np.log(weights @ found.sums.T)


def _factor(errors: Floats, blocks: int) -> float:
    """How many standard errors the widest of all is away at most, in 95 of 100 drawings; wider for few blocks."""
    from scipy.stats import norm, t  # noqa: PLC0415 - seconds, which a log that is refused does not wait for

    widest = float(np.quantile(np.abs(errors).max(axis=1), CONFIDENCE))
    tail = 0.5 + CONFIDENCE / 2
    few = float(t.ppf(tail, blocks - 1) / norm.ppf(tail)) * float(np.sqrt(blocks / (blocks - 1)))
    return widest * few

"""From repeats to intervals: one arm's speed at one concurrency, and two arms against each other. Pure arithmetic.

Speeds are compared by the mean of their logarithms, since noise on them multiplies, and intervals are Student's t over
repeats: repeats are what differs from cell to cell on a real machine, not the tokens inside one. Judging contrasts is
routing's (routing/verdict.py).
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from proxy.lab.calibration.values import Arm, Condition, Estimate, Measurement
from proxy.routing.verdict import Contrast

# Below three repeats the t-interval is so wide (12.7 standard errors for two) that it says nothing.
MIN_REPEATS = 3

# With one short cell there is no spread to measure. Quick runs take this for half the 95 % interval of ln(ratio): the
# tokens that a lone speculating sequence happens to gain in five seconds vary by 3 to 4 %.
QUICK_HALF_WIDTH = 0.08

_CONFIDENCE = 0.95


class Interval(NamedTuple):
    """A mean of logarithms with its 95 % interval; infinite where there are fewer repeats than it takes."""

    mean: float
    low: float
    high: float
    repeats: int

    @property
    def half_width(self) -> float:
        """Half the length of the interval."""
        return (self.high - self.low) / 2.0


def interval(values: Sequence[float]) -> Interval:
    """Mean and t-interval of independent repeats, at least one."""
    count = len(values)
    mean = math.fsum(values) / count
    if count < MIN_REPEATS:
        return Interval(mean, -math.inf, math.inf, count)
    from scipy.special import stdtrit  # noqa: PLC0415 - options are parsed and explained without the optional extra

    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    half = float(stdtrit(count - 1, (1.0 + _CONFIDENCE) / 2.0)) * spread / math.sqrt(count)
    return Interval(mean, mean - half, mean + half, count)


class Book:
    """The usable measurements of one condition, by concurrency and arm; repeats in their order."""

    def __init__(self, condition: Condition, measurements: Iterable[Measurement]) -> None:
        self.condition = condition
        self._speeds: dict[int, dict[Arm, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
        self._queued: dict[tuple[int, Arm], int] = defaultdict(int)
        for one in measurements:
            cell = one.cell
            if cell.condition == condition and one.usable:
                self._speeds[cell.concurrency][cell.arm][cell.repeat] = one.tok_s
                self._queued[cell.concurrency, cell.arm] += 1 if one.queued else -1

    @property
    def concurrencies(self) -> list[int]:
        """Where anything usable was measured, rising."""
        return sorted(self._speeds)

    def repeats(self, concurrency: int, arm: Arm) -> Mapping[int, float]:
        """Speed by number of repeat, output tok/s."""
        return self._speeds[concurrency][arm] if concurrency in self._speeds else {}

    def queued(self, concurrency: int, arm: Arm) -> bool:
        """Whether the engine ran fewer sequences than asked in most repeats."""
        return self._queued.get((concurrency, arm), 0) > 0

    def curve(self, arm: Arm) -> tuple[Estimate, ...]:
        """One arm's speeds with their intervals, rising in concurrency."""
        points = []
        for concurrency in self.concurrencies:
            speeds = list(self.repeats(concurrency, arm).values())
            if not speeds:
                continue
            found = interval([math.log(speed) for speed in speeds])
            known = math.isfinite(found.high)
            points.append(
                Estimate(
                    concurrency,
                    math.exp(found.mean),
                    low=math.exp(found.low) if known else None,
                    high=math.exp(found.high) if known else None,
                    repeats=len(speeds),
                    queued=self.queued(concurrency, arm),
                )
            )
        return tuple(points)

    def contrasts(self, one: Arm, other: Arm, *, quick: bool = False) -> tuple[Contrast, ...]:
        """ln(one / other) where both have a repeat of the same number, rising in concurrency."""
        found = []
        for concurrency in self.concurrencies:
            left, right = self.repeats(concurrency, one), self.repeats(concurrency, other)
            ratios = [math.log(left[repeat] / right[repeat]) for repeat in sorted(left.keys() & right.keys())]
            if ratios:
                queued = self.queued(concurrency, one) or self.queued(concurrency, other)
                found.append(_contrast(concurrency, interval(ratios), queued=queued, quick=quick))
        return tuple(found)


def _contrast(concurrency: int, found: Interval, *, queued: bool, quick: bool) -> Contrast:
    low, high = found.low, found.high
    if quick and math.isinf(high):
        half = QUICK_HALF_WIDTH / math.sqrt(found.repeats)
        low, high = found.mean - half, found.mean + half
    return Contrast(concurrency, found.mean, low, high, repeats=found.repeats, queued=queued)

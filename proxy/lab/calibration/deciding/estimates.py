"""From repeats to intervals: one arm's speed at one concurrency, and two arms against each other. Pure arithmetic.

Speeds are compared by the mean of their logarithms, since noise on them multiplies, and intervals are Student's t over
repeats: repeats are what differs from cell to cell on a real machine, not the tokens inside one. How much they differ
is told by the other cells of the condition too, since three repeats that happen to agree say little of the next.
Judging contrasts is routing's (routing/verdict.py).
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from proxy.lab.calibration.values import Arm, Condition, Estimate, Measurement
from proxy.routing.verdict import MIN_REPEATS, Contrast

# With one short cell there is no spread to measure. Quick runs take this for half the 95 % interval of ln(ratio): the
# tokens that a lone speculating sequence happens to gain in five seconds vary by 3 to 4 %.
QUICK_HALF_WIDTH = 0.08

# What other cells say of the spread weighs as much as this many repeats more of the cell itself. At 0 three repeats
# that agree by chance make an interval of no width, and end the measuring; far above, a cell that scatters twice as
# much as the others is told as if it did not.
BORROWED_REPEATS = 4.0

# Differences between repeats that tell a spread: four cells of three repeats.
_ENOUGH_FREEDOM = 8

# Below this many in all, a spread is not known any better than by the cell itself.
_LEAST_FREEDOM = 6

_CONFIDENCE = 0.95


class Spread(NamedTuple):
    """How repeats scatter in cells that are alike: the variance of logarithms, known by so many differences."""

    variance: float
    freedom: int


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


def common_spread(groups: Iterable[Sequence[float]]) -> Spread | None:
    """The mean spread of groups of repeats; None where there are too few to tell."""
    freedom, squares = 0, 0.0
    for values in groups:
        freedom += len(values) - 1
        squares += _squares(values)
    return Spread(squares / freedom, freedom) if freedom >= _LEAST_FREEDOM else None


def lent_spread(groups: Mapping[int, Sequence[float]], concurrency: int) -> Spread | None:
    """What other cells lend one of them: the spread of all, or that of the nearest where it is greater.

    A lone sequence scatters two to three times as much as fifty, so the spread of all would make intervals at 1 too
    narrow. The spread of the nearest alone is small by chance too often, and ends the measuring there.
    """
    near: list[Sequence[float]] = []
    for at in sorted(groups, key=lambda at: abs(math.log(at / concurrency))):
        if sum(len(values) - 1 for values in near) >= _ENOUGH_FREEDOM:
            break
        near.append(groups[at])
    known = [spread for some in (groups.values(), near) if (spread := common_spread(some)) is not None]
    return max(known, key=lambda spread: spread.variance, default=None)


def interval(values: Sequence[float], common: Spread | None = None) -> Interval:
    """Mean and t-interval of independent repeats, at least one.

    With `common` the spread is the mean of their own and of that, weighed by what each is known by.
    """
    count = len(values)
    mean = math.fsum(values) / count
    if count < MIN_REPEATS:
        return Interval(mean, -math.inf, math.inf, count)
    from scipy.special import stdtrit  # noqa: PLC0415 - options are parsed and explained without the optional extra

    freedom, squares = float(count - 1), _squares(values)
    if common is not None:
        freedom += BORROWED_REPEATS
        squares += BORROWED_REPEATS * common.variance
    half = float(stdtrit(freedom, (1.0 + _CONFIDENCE) / 2.0)) * math.sqrt(squares / freedom / count)
    return Interval(mean, mean - half, mean + half, count)


def _squares(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values)


class Book:
    """The usable measurements of one condition, by concurrency and arm; repeats in their order.

    Speeds are of one kind: while decoding where each arm tells that in most of its cells (and those that do not are
    left out), else what clients got, of all. One arm's decoding beside the other's whole time would be no comparison.
    `gross` says that it is the latter. Where an arm hardly ever tells it, nothing is known of that concurrency: engines
    time no step that somebody joins, and a lucky repeat or two would only make an interval without end.
    """

    def __init__(self, condition: Condition, measurements: Iterable[Measurement]) -> None:
        self.condition = condition
        self._speeds: dict[int, dict[Arm, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
        self._queued: dict[tuple[int, Arm], int] = defaultdict(int)
        usable = [one for one in measurements if one.cell.condition == condition and one.usable]
        self.gross = not _tell_decoding(usable)
        told = _balance((one.cell.concurrency, one.cell.arm, bool(one.decode_tok_s)) for one in usable)
        for one in usable:
            cell, speed = one.cell, one.gross_tok_s if self.gross else one.decode_tok_s
            if speed and (self.gross or told[cell.concurrency, cell.arm] > 0):
                self._speeds[cell.concurrency][cell.arm][cell.repeat] = speed
                self._queued[cell.concurrency, cell.arm] += 1 if one.queued else -1
        if not self.gross:
            self._carry([one for one in usable if one.batch and not one.queued])

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
        speeds = {at: [math.log(speed) for speed in self.repeats(at, arm).values()] for at in self.concurrencies}
        measured = {at: logs for at, logs in speeds.items() if logs}
        points = []
        for concurrency, logs in measured.items():
            found = interval(logs, lent_spread(measured, concurrency))
            known = math.isfinite(found.high)
            points.append(
                Estimate(
                    concurrency,
                    math.exp(found.mean),
                    low=math.exp(found.low) if known else None,
                    high=math.exp(found.high) if known else None,
                    repeats=len(logs),
                    queued=self.queued(concurrency, arm),
                )
            )
        return tuple(points)

    def contrasts(self, one: Arm, other: Arm, *, quick: bool = False) -> tuple[Contrast, ...]:
        """ln(one / other) where both have a repeat of the same number, rising in concurrency."""
        ratios = {at: logs for at in self.concurrencies if (logs := self._log_ratios(at, one, other))}
        found = []
        for concurrency, logs in ratios.items():
            queued = self.queued(concurrency, one) or self.queued(concurrency, other)
            known = interval(logs, lent_spread(ratios, concurrency))
            found.append(_contrast(concurrency, known, queued=queued, quick=quick))
        return tuple(found)

    def _carry(self, full: Iterable[Measurement]) -> None:
        """Carry speeds from the batch that ran to the one asked for, along the arm's own curve.

        While one answer follows another a place is empty for a step or so. That takes twice as much from an arm whose
        answers last half as long, which would pass for speed.
        """
        slopes = {arm: _slopes({at: self.repeats(at, arm) for at in self.concurrencies}) for arm in Arm}
        for one in full:
            at, arm, repeat = one.cell.concurrency, one.cell.arm, one.cell.repeat
            if one.batch is not None and repeat in self.repeats(at, arm):
                self._speeds[at][arm][repeat] *= (at / one.batch) ** slopes[arm][at]

    def _log_ratios(self, concurrency: int, one: Arm, other: Arm) -> list[float]:
        left, right = self.repeats(concurrency, one), self.repeats(concurrency, other)
        return [math.log(left[repeat] / right[repeat]) for repeat in sorted(left.keys() & right.keys())]


def _slopes(speeds: Mapping[int, Mapping[int, float]]) -> dict[int, float]:
    """How speed grows towards each concurrency from the one below, ln by ln: 0 where it is flat, 1 in proportion."""
    means = {at: math.fsum(map(math.log, known.values())) / len(known) for at, known in speeds.items() if known}
    rises = [
        min(max((means[high] - means[low]) / math.log(high / low), 0.0), 1.0) for low, high in pairwise(sorted(means))
    ]
    # Below the first there is none: it grows as from there to the second.
    return dict(zip(sorted(means), [*rises[:1], *rises] or [0.0] * len(means), strict=True))


def _tell_decoding(usable: Sequence[Measurement]) -> bool:
    """Whether each arm tells its speed while decoding in most of its cells."""
    votes = _balance((0, one.cell.arm, bool(one.decode_tok_s)) for one in usable)
    return bool(votes) and min(votes.values()) > 0


def _balance(cells: Iterable[tuple[int, Arm, bool]]) -> Mapping[tuple[int, Arm], int]:
    """By how many cells those that tell exceed those that do not."""
    votes: dict[tuple[int, Arm], int] = defaultdict(int)
    for at, arm, tells in cells:
        votes[at, arm] += 1 if tells else -1
    return votes


def _contrast(concurrency: int, found: Interval, *, queued: bool, quick: bool) -> Contrast:
    low, high = found.low, found.high
    if quick and math.isinf(high):
        half = QUICK_HALF_WIDTH / math.sqrt(found.repeats)
        low, high = found.mean - half, found.mean + half
    return Contrast(concurrency, found.mean, low, high, repeats=found.repeats, queued=queued)

"""What is believed of one backend's speed beside its measured curve: ln(seconds for a token by those of the curve).

Evidence lies in bins of number in flight and bucket of context. Between and beyond them a Gaussian process draws a
smooth line, so that one bin corrects its neighbours and all of them the level, and what nothing is known of stays as
measured. Where evidence comes from is in evidence.py, what is done with the line in learner.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf, log, log2, sqrt
from typing import NamedTuple

from proxy.routing.evidence import Seen

# No correction goes beyond: a chain that loses all acceptance is 2 to 4 times slower, a curve of the wrong machine
# perhaps three times. More is a fault of what was measured or told.
MOST_LN = log(8.0)

# Bins to a doubling of the number in flight: the published curves have a point each doubling, and cliffs between.
BINS_PER_DOUBLING = 2

# What one more observation in a bin leaves of those before: the last fifty decide it.
DISCOUNT = 0.98

# The prior, as standard deviations of ln: how far the whole curve may be off, and its shape, which changes by as much
# over a factor of exp(REACH) in number in flight. The shape is taken wide: evidence by moments is good to a hundredth
# within some looks, and a curve of another day or chain is off by a third. The level is not: what a lone request shows
# must not be believed of a hundred, or shared GPUs are given to a backend that cannot carry the load (tried: 0.35 and
# 0.2 cost up to 40 % there for some minutes, and 0.12 learns as fast elsewhere).
LEVEL, SHAPE, REACH = 0.12, 0.35, 1.2
# How much of a shape is common to two buckets of context.
ACROSS = 0.6

# No bin is believed to better than this: batches of one look differ, and so do contexts of one bucket.
FLOOR_VARIANCE = 0.012**2
# Variance that a bin gains each second that it sees nothing: a tenth, as a standard deviation, in ten minutes.
AGEING = 0.1**2 / 600.0

# CUSUM of (seen - believed) in ln: what is forgiven each time, and the sum at which something has changed. Of repeats
# of a measurement (1 to 3 %) it never adds up; a drop of acceptance by a fifth is found at the third look.
SLACK, LIMIT = 0.05, 0.5
# What a change leaves of the weight of evidence from before.
KEPT = 0.2
# A bin tells a change only once it knows what was before.
SETTLED_VARIANCE = 0.05**2
# What is added up of a single observation at most, so that one broken one is no change.
MOST_STEP = 0.35

# The bins that a line is drawn through at most: the best known ones. The work grows with the third power.
MOST_BINS = 16


class Place(NamedTuple):
    """Where evidence lies: the bucket of context and the bin of number in flight."""

    bucket: int
    bin: int


@dataclass(slots=True)
class Bin:
    """Evidence of one place: the mean of ln(in flight) and of ln(ratio), with the weight behind them, 1/variance."""

    weight: float
    ln_n: float
    ln_ratio: float
    at_s: float

    def variance(self, now_s: float) -> float:
        """That of `ln_ratio` by now."""
        return 1.0 / self.weight + FLOOR_VARIANCE + AGEING * max(0.0, now_s - self.at_s)


class Line(NamedTuple):
    """The line through all evidence, made by `Belief.line`. It rests on another one (`under`), or on the measured
    curve."""

    places: Sequence[tuple[int, float]]
    pulls: Sequence[float]
    under: "Line | None" = None

    def at(self, bucket: int, n: float) -> float:
        """ln(seconds for a token by those of the curve) with so many in flight."""
        ln_n = log(n)
        pulled = sum(pull * _kernel(bucket, ln_n, *place) for place, pull in zip(self.places, self.pulls, strict=True))
        if self.under is not None:
            pulled += self.under.at(bucket, n)
        return min(MOST_LN, max(-MOST_LN, pulled))

    def ratio(self, bucket: int, n: float) -> float:
        """The same as a ratio; of fewer than one in flight it is that of one."""
        return exp(self.at(bucket, max(1.0, n)))


NO_LINE = Line((), ())


class Belief:
    """All evidence of one backend."""

    def __init__(self) -> None:
        self.bins: dict[Place, Bin] = {}
        self.changes = 0
        self.changed_at_s = float("-inf")
        self._rise = self._fall = 0.0
        self._risen: list[float] = []

    def observe(self, bucket: int, seen: Seen, ln_ratio: float, now_s: float) -> bool:
        """Take in that the ratio was `ln_ratio`; whether it shows a change."""
        ln_ratio = min(MOST_LN, max(-MOST_LN, ln_ratio))
        place = Place(bucket, bin_of(seen.in_flight))
        found = self.bins.get(place)
        changed = False
        if found is not None and found.variance(now_s) <= SETTLED_VARIANCE:
            changed = self._cumulate(ln_ratio - found.ln_ratio, seen.variance, now_s)
        if found is None:
            self.bins[place] = Bin(1.0 / seen.variance, log(seen.in_flight), ln_ratio, now_s)
            return changed
        kept = found.weight * DISCOUNT
        found.weight = kept + 1.0 / seen.variance
        share = 1.0 / (seen.variance * found.weight)
        found.ln_n += (log(seen.in_flight) - found.ln_n) * share
        found.ln_ratio += (ln_ratio - found.ln_ratio) * share
        found.at_s = now_s
        return changed

    def move(self, jump: float, now_s: float) -> None:
        """The backend has become slower by `jump`, in ln, at every load: what was known is moved and trusted less."""
        for each in self.bins.values():
            each.weight *= KEPT
            each.ln_ratio = min(MOST_LN, max(-MOST_LN, each.ln_ratio + jump))
        self._rise = self._fall = 0.0
        self._risen = []
        self.changes += 1
        self.changed_at_s = now_s

    def _cumulate(self, residual: float, variance: float, now_s: float) -> bool:
        """Add a residual up; at the limit it is a change."""
        step = min(MOST_STEP, max(-MOST_STEP, residual))
        slack = max(SLACK, 0.5 * sqrt(variance))
        rise, fall = max(0.0, self._rise + step - slack), max(0.0, self._fall - step - slack)
        self._risen = [*self._risen[-9:], residual] if rise or fall else []
        self._rise, self._fall = rise, fall
        if max(rise, fall) < max(LIMIT, 5.0 * sqrt(variance)):
            return False
        same = [each for each in self._risen if (each > 0.0) == (rise > fall)]
        self.move(sorted(same)[len(same) // 2], now_s)
        return True

    def known_s(self, bucket: int, n: float) -> float | None:
        """When the place of so many in flight, or one beside it, was last seen; None: never."""
        here = bin_of(n)
        near = (self.bins.get(Place(bucket, each)) for each in (here - 1, here, here + 1))
        return max((each.at_s for each in near if each is not None), default=None)

    def variance(self, bucket: int, n: float, now_s: float) -> float:
        """That of the best known place with so many in flight or more; infinite where nothing was seen there."""
        least = bin_of(n)
        known = (each for place, each in self.bins.items() if place.bucket == bucket and place.bin >= least)
        return min((each.variance(now_s) for each in known), default=inf)

    def line(self, now_s: float, under: Line | None = None) -> Line:
        """The smooth line through what is known by now, which elsewhere goes on as `under` does."""
        known = sorted(self.bins.items(), key=lambda item: item[1].variance(now_s))[:MOST_BINS]
        if not known:
            return NO_LINE
        places = [(place.bucket, each.ln_n) for place, each in known]
        rows = [[_kernel(*one, *other) for other in places] for one in places]
        for row, (_, each) in enumerate(known):
            rows[row][row] += each.variance(now_s)
        right = [
            each.ln_ratio - (under.at(place.bucket, exp(each.ln_n)) if under is not None else 0.0)
            for place, each in known
        ]
        return Line(places, _solved(rows, right), under)


def bin_of(n: float) -> int:
    """The bin of a number in flight."""
    return round(BINS_PER_DOUBLING * log2(n))


def bin_middle(number: int) -> float:
    """The number in flight in the middle of a bin."""
    return float(2.0 ** (number / BINS_PER_DOUBLING))


def _kernel(bucket: int, ln_n: float, other: int, other_ln_n: float) -> float:
    apart = (ln_n - other_ln_n) / REACH
    shape = SHAPE * SHAPE * exp(-0.5 * apart * apart)
    return LEVEL * LEVEL + (shape if bucket == other else ACROSS * shape)


def _solved(rows: list[list[float]], right: list[float]) -> list[float]:
    """The solution of a symmetric positive definite system, by Cholesky's way."""
    size = len(rows)
    lower = [[0.0] * size for _ in range(size)]
    for row in range(size):
        for column in range(row + 1):
            left = rows[row][column] - sum(
                one * other for one, other in zip(lower[row][:column], lower[column][:column], strict=True)
            )
            lower[row][column] = sqrt(left) if row == column else left / lower[column][column]
    forward: list[float] = []
    for row in range(size):
        known = sum(one * other for one, other in zip(lower[row], forward, strict=False))
        forward.append((right[row] - known) / lower[row][row])
    solved = [0.0] * size
    for row in reversed(range(size)):
        known = sum(lower[below][row] * solved[below] for below in range(row + 1, size))
        solved[row] = (forward[row] - known) / lower[row][row]
    return solved

"""Measured speeds as tables of delays, so that a decision is a few looks into lists.

How speeds lie between measurements is in curves.py, what is made of a delay in marginal.py.
"""

from bisect import bisect_left
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from math import sqrt
from typing import NamedTuple

from proxy.routing.curves import Curves, SpeedCurve

# Sequences in flight up to which delays are listed; beyond they are computed, with the same result. Hardly an engine
# runs more at once, and a list of two roles in ten buckets is made in some milliseconds.
MAX_LISTED = 512

# Lists kept, two for each bucket of the curves in force and of those before: a pin at run time or a look by
# `crossover check` makes none anew.
MAX_KEPT = 64


@dataclass(frozen=True, slots=True)
class Delays:
    """n d(n) of one backend: the seconds for a token, summed over the n sequences in flight."""

    curve: SpeedCurve
    listed: tuple[float, ...] = field(init=False, repr=False, compare=False)
    """n d(n) for n from 0 to MAX_LISTED."""
    steps: tuple[float, ...] = field(init=False, repr=False, compare=False)
    """What one sequence more adds to each of them but the last."""

    def __post_init__(self) -> None:
        listed = tuple(_total(self.curve, n) for n in range(MAX_LISTED + 1))
        object.__setattr__(self, "listed", listed)
        object.__setattr__(self, "steps", tuple(after - before for before, after in pairwise(listed)))

    def total(self, n: int) -> float:
        """n d(n), seconds; 0 with none in flight."""
        return self.listed[n] if n <= MAX_LISTED else _total(self.curve, n)

    def added(self, n: int, weight: int) -> float:
        """What `weight` sequences more add to n d(n): their own delay and that of the n others, seconds for a token."""
        if weight == 1 and n < MAX_LISTED:
            return self.steps[n]
        return self.total(n + weight) - self.total(n)


class Bucket(NamedTuple):
    """The delays of both backends around one length of context."""

    speculative: Delays
    baseline: Delays


@dataclass(frozen=True, slots=True)
class DelayTables:
    """The delays in each bucket of context, rising; `bounds` are the lengths, tokens, at which one ends."""

    buckets: tuple[Bucket, ...]
    bounds: tuple[float, ...]

    def at_context(self, tokens: float) -> Bucket:
        """The bucket nearest to a context of so many tokens, as `Curves.at_context` finds it."""
        return self.buckets[bisect_left(self.bounds, tokens)]


def tables(curves: Curves | None) -> DelayTables | None:
    """The tables of curves that have both backends in every bucket; None without such."""
    if curves is None or not curves.whole:
        return None
    buckets = [
        Bucket(_delays(each.speculative), _delays(each.baseline))
        for each in curves.contexts
        if each.speculative is not None and each.baseline is not None
    ]
    lengths = [max(each.context_tokens, 1) for each in curves.contexts]
    return DelayTables(tuple(buckets), tuple(sqrt(one * other) for one, other in pairwise(lengths)))


@lru_cache(maxsize=MAX_KEPT)
def _delays(curve: SpeedCurve) -> Delays:
    return Delays(curve)


def _total(curve: SpeedCurve, n: int) -> float:
    return n * curve.seconds_per_token(n) if n else 0.0

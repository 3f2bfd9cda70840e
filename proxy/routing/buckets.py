"""What is made of both backends' curves in each bucket of context, found by the tokens of a context."""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt
from typing import Generic, TypeVar

from proxy.routing.curves import Curves, SpeedCurve

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class Buckets(Generic[Made]):
    """What was made for the speculative and for the baseline backend in each bucket, rising; `bounds` are the lengths,
    tokens, at which one ends and the next begins."""

    made: tuple[tuple[Made, Made], ...]
    bounds: tuple[float, ...]

    def at_context(self, tokens: float) -> tuple[Made, Made]:
        """Those of the bucket nearest to a context of so many tokens, as `Curves.at_context` finds it."""
        return self.made[bisect_left(self.bounds, tokens)]


def buckets(curves: Curves | None, make: Callable[[SpeedCurve, float | None], Made]) -> Buckets[Made] | None:
    """What `make` makes of each curve and its backend's prefill, prompt tok/s where that is known. None where a bucket
    lacks the curve of a backend, or there are no curves."""
    if curves is None or not curves.whole:
        return None
    # Behind a bucket of no token at all one of a single token is never the nearest.
    known = {max(each.context_tokens, 1): each for each in reversed(curves.contexts)}
    lengths = sorted(known)
    made = tuple(
        (make(each.speculative, each.prefill_tok_s[0]), make(each.baseline, each.prefill_tok_s[1]))
        for each in map(known.__getitem__, lengths)
        if each.speculative is not None and each.baseline is not None
    )
    return Buckets(made, tuple(sqrt(one * other) for one, other in pairwise(lengths)))

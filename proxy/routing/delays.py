"""Measured speeds as tables of delays, so that a decision is a few looks into lists.

How speeds lie between measurements is in curves.py, buckets of context in buckets.py, what is made of a delay in
outlook.py and marginal.py.
"""

from dataclasses import dataclass, field
from functools import lru_cache

from proxy.routing.curves import SpeedCurve

# Sequences in flight up to which delays are listed; beyond they are computed, with the same result. Hardly an engine
# runs more at once, and a list of two roles in ten buckets is made in some milliseconds.
MAX_LISTED = 512

# Lists kept, two for each bucket of the curves in force and of those before: a pin at run time or a look by
# `crossover check` makes none anew.
MAX_KEPT = 64


@dataclass(frozen=True, slots=True, eq=False)  # looked up by what it is: comparing speeds each time takes long
class Delays:
    """n d(n) of one backend: the seconds for a token, summed over the n sequences in flight."""

    curve: SpeedCurve
    prefill_tok_s: float | None = None
    """Prompt tokens a second that the backend takes in; None where it is not known."""
    listed: tuple[float, ...] = field(init=False, repr=False, compare=False)
    """n d(n) for n from 0 to MAX_LISTED."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "listed", tuple(_total(self.curve, n) for n in range(MAX_LISTED + 1)))

    def total(self, n: int) -> float:
        """n d(n), seconds; 0 with none in flight."""
        return self.listed[n] if n <= MAX_LISTED else _total(self.curve, n)


@lru_cache(maxsize=MAX_KEPT)
def delays(curve: SpeedCurve, prefill_tok_s: float | None = None) -> Delays:
    """The delays of one curve; of one seen lately they are not listed anew."""
    return Delays(curve, prefill_tok_s)


def _total(curve: SpeedCurve, n: int) -> float:
    return n * curve.seconds_per_token(n) if n else 0.0

"""What a backend shows of its speed while the other one works on the same GPUs.

Their steps then alternate, so that neither's lasts as long as alone. What a step yields stays as it is, and the other
one's part of the time is known from when that was alone. Evidence from quiet times is in evidence.py.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from proxy.routing.evidence import LEAST_VARIANCE, Seen

# Variance of ln of a speed that was found by taking the other backend's steps away: that steps alternate is a guess,
# and real GPUs may also run parts of both at once. As a standard deviation, a third.
GUESSED_VARIANCE = 0.3**2

# The least part of a step that may be left for its own backend; less is no alternation.
LEAST_LEFT = 0.15


class Alone(NamedTuple):
    """Steps of a backend that had the GPUs to itself: their batch, seconds, and tokens for each sequence."""

    in_flight: float
    step_s: float
    tokens: float


def steps(before: Sequence[float], after: Sequence[float], ranks: int) -> Alone | None:
    """The mean step between two looks at moments that `by_moments` has found plausible."""
    count, batches, _, _, busy_us, tokens = (new - old for old, new in zip(before, after, strict=True))
    if count < 1.0 or batches <= 0.0:
        return None
    return Alone(batches / count * ranks, busy_us * 1e-6 / batches, tokens / batches)


def parted(now: Alone, other: Alone, other_now: float, other_total: Callable[[float], float]) -> Seen | None:
    """A backend's own speed, where `other` is what the other one did alone and `other_now` the number that it holds."""
    grown = (other_total(other_now) / other_now) / (other_total(other.in_flight) / other.in_flight)
    left_s = now.step_s - other.step_s * grown
    if left_s < LEAST_LEFT * now.step_s or now.tokens <= 0.0:
        return None
    taken = (now.step_s - left_s) / left_s
    return Seen(now.in_flight, 0.0, left_s / now.tokens, GUESSED_VARIANCE * min(1.0, taken * taken) + LEAST_VARIANCE)

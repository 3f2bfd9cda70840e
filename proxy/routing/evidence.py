"""What live traffic shows of an engine's speed: two looks at its counters, or one answer, to seconds for a token.

Whatever an engine says is taken for a claim: what cannot be true is no evidence. What is made of it is in belief.py.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from math import isfinite, sqrt
from typing import NamedTuple

# Seconds for a token that no engine of these needs: outside lies a broken counter.
LEAST_S, MOST_S = 1e-6, 1e3

# A mean batch beyond this is a broken counter too.
MOST_IN_FLIGHT = 1e6

# Variance of ln(seconds for a token) that no count of steps takes away: the scatter of step times (3 % on engines of
# the published curves), and batches that differ within one look.
LEAST_VARIANCE = 0.03**2

# Variance of the tokens that one sequence gains in one step, by the square of their mean: chains of 2 to 4 accepted
# tokens have 0.1 to 0.2; an engine without speculation none.
STEP_VARIANCE = 0.2

# Steps times sequences below which two looks say nothing: the acceptance of so few is chance.
LEAST_STEPS = 8.0

# Of generated tokens of some seconds, and of one answer: prompts of others come in between, and the number in flight
# changes. Standard deviations of a twentieth and a seventh.
COUNTER_VARIANCE, ANSWER_VARIANCE = 0.05**2, 0.15**2

# The tokens of an answer from which its time for each says something.
LEAST_TOKENS = 16


class Source(StrEnum):
    """Where evidence is from: an engine's decode moments, the tokens that it has generated, or answers."""

    MOMENTS = "moments"
    TOKENS = "tokens"
    ANSWERS = "answers"


class Seen(NamedTuple):
    """A speed that was seen: `seconds_per_token` of each sequence, while `in_flight` of them ran in the mean, with a
    standard deviation of `spread`. `variance` is that of ln(seconds_per_token)."""

    in_flight: float
    spread: float
    seconds_per_token: float
    variance: float
    source: Source = Source.MOMENTS

    def ratio(self, total: Callable[[float], float]) -> float:
        """What was seen by what `total` foretells: n d(n), the seconds for a token summed over n sequences.

        At two numbers in flight with the mean and the spread that were seen: that is as good as every step by itself
        wherever total is nearly a parabola.
        """
        if not self.spread:
            return self.in_flight * self.seconds_per_token / total(self.in_flight)
        below = max(self.in_flight - self.spread, 1e-3)
        above = 2.0 * self.in_flight - below
        return 2.0 * self.in_flight * self.seconds_per_token / (total(below) + total(above))


def by_moments(before: Sequence[float], after: Sequence[float], ranks: int) -> Seen | None:
    """What two looks at cumulative decode moments show; None where they show nothing, as after a restart."""
    if len(before) != len(after) or len(after) != 6 or ranks < 1:
        return None
    gained = [new - old for old, new in zip(before, after, strict=True)]
    if not all(isfinite(each) and each >= 0.0 for each in gained):
        return None
    steps, batches, _, squares, busy_us, tokens = gained
    if steps < 1.0 or batches < LEAST_STEPS or tokens <= 0.0:
        return None
    mean = batches / steps
    spread = sqrt(max(0.0, squares / steps - mean * mean))
    variance = LEAST_VARIANCE + STEP_VARIANCE / batches
    return _plausible(Seen(mean * ranks, min(spread, mean) * ranks, busy_us * 1e-6 / tokens, variance))


def by_counter(tokens: float, held: tuple[float, float], decoding: float) -> Seen | None:
    """What so many generated tokens between two looks show, while `held` sequences and their square, times seconds, had
    begun, and the engine was decoding for that share of the time."""
    area_s, square_s = held
    if not (
        isfinite(tokens) and tokens >= LEAST_TOKENS and area_s >= LEAST_S and area_s <= square_s < MOST_IN_FLIGHT**2
    ):
        return None
    return _plausible(Seen(square_s / area_s, 0.0, area_s * decoding / tokens, COUNTER_VARIANCE, Source.TOKENS))


def by_answer(tpot_s: float, tokens: float, in_flight: float) -> Seen | None:
    """What one answer shows that had `in_flight` sequences on its backend in the mean, itself among them."""
    if not tokens >= LEAST_TOKENS:
        return None
    return _plausible(Seen(in_flight, 0.0, tpot_s, ANSWER_VARIANCE + STEP_VARIANCE / tokens, Source.ANSWERS))


def _plausible(seen: Seen) -> Seen | None:
    fits = LEAST_S <= seen.seconds_per_token <= MOST_S and 0.5 <= seen.in_flight <= MOST_IN_FLIGHT
    return seen if fits and isfinite(seen.spread) and isfinite(seen.variance) else None

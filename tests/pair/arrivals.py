"""When requests come and how long their answers are: the same for every arm. Pure; sending is in drive.py."""

import math
import random
from collections.abc import Sequence
from typing import NamedTuple

# Answers differ as much as those of chats; each is asked for by its limit and never ends before it.
SIGMA = 0.5
# Of the mean: beyond, one answer alone would decide a step.
SHORTEST, LONGEST = 0.125, 4.0


class Step(NamedTuple):
    """A load that stays: so many requests a second on average for `seconds`."""

    rate: float
    seconds: float


class Arrival(NamedTuple):
    """Request `index` comes `at_s` after the beginning, in step `step`, and asks for `tokens`."""

    index: int
    step: int
    at_s: float
    tokens: int


def arrivals(steps: Sequence[Step], mean_tokens: int, seed: int) -> list[Arrival]:
    """All requests in the order in which they come: exponential gaps, answers spread log-normally about the mean.

    A step begins anew, so that one has the same arrivals whatever came before it.
    """
    found: list[Arrival] = []
    began_s = 0.0
    for place, step in enumerate(steps):
        gaps, lengths = (random.Random(f"{seed}/{place}/{what}") for what in ("arrivals", "tokens"))
        at_s = gaps.expovariate(step.rate)
        while at_s < step.seconds:
            found.append(Arrival(len(found), place, began_s + at_s, _length(lengths, mean_tokens)))
            at_s += gaps.expovariate(step.rate)
        began_s += step.seconds
    return found


def _length(chance: random.Random, mean: int) -> int:
    drawn = chance.lognormvariate(math.log(mean) - SIGMA**2 / 2, SIGMA)
    return max(2, round(min(max(drawn, SHORTEST * mean), LONGEST * mean)))

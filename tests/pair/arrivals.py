"""When requests come and how long their answers are: the same for every arm. Pure; sending is in drive.py."""

import math
import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

# Answers differ as much as those of chats; each is asked for by its limit and never ends before it.
SIGMA = 0.5
# Of the mean: beyond, one answer alone would decide a step.
SHORTEST, LONGEST = 0.125, 4.0
# From a turn to the next one: a program that calls tools. Longer than most answers take.
PAUSE_S = 4.0


class Step(NamedTuple):
    """A load that stays: so many requests a second on average for `seconds`."""

    rate: float
    seconds: float


class Arrival(NamedTuple):
    """Request `index` comes `at_s` after the beginning, in step `step`, and asks for `tokens`: turn `turn` (from 0) of
    a conversation."""

    index: int
    step: int
    at_s: float
    tokens: int
    conversation: int
    turn: int


def arrivals(steps: Sequence[Step], mean_tokens: int, seed: int, turns: int = 1) -> list[Arrival]:
    """All requests in the order in which they come: exponential gaps, answers spread log-normally about the mean.

    A step begins anew, so that one has the same arrivals whatever came before it. With several `turns` conversations
    come at random, as many that the rate is right once they are under way; a turn that would come after its step is
    left out.
    """
    found: list[Arrival] = []
    began_s, conversations = 0.0, 0
    for place, step in enumerate(steps):
        came = sorted(_step(step, turns, f"{seed}/{place}"))
        lengths = random.Random(f"{seed}/{place}/tokens")
        for at_s, conversation, turn in came:
            number = conversations + conversation
            tokens = _length(lengths, mean_tokens)
            found.append(Arrival(len(found), place, began_s + at_s, tokens, number, turn))
        began_s += step.seconds
        conversations += max((conversation + 1 for _, conversation, _ in came), default=0)
    return found


def _step(step: Step, turns: int, name: str) -> Iterator[tuple[float, int, int]]:
    gaps = random.Random(f"{name}/arrivals")
    begins_s, conversation = gaps.expovariate(step.rate / turns), 0
    while begins_s < step.seconds:
        for turn in range(turns):
            if (at_s := begins_s + turn * PAUSE_S) < step.seconds:
                yield at_s, conversation, turn
        begins_s += gaps.expovariate(step.rate / turns)
        conversation += 1


def _length(chance: random.Random, mean: int) -> int:
    drawn = chance.lognormvariate(math.log(mean) - SIGMA**2 / 2, SIGMA)
    return max(2, round(min(max(drawn, SHORTEST * mean), LONGEST * mean)))

"""How long a backend would take for a token if it served all demand alone: looked up in measured speeds.

Requests come at random, so that more are in flight than a steady stream would hold. How demand is known, and what is
made of the answer, is in consolidate.py.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from math import exp, inf, log

from proxy.routing.curves import SpeedCurve
from proxy.routing.delays import MAX_KEPT, MAX_LISTED

# Seconds for a token where demand is more than a backend was measured to give: its queue would grow without end. Longer
# than any other, and of two that are overloaded the one that gives more is the better by as much as it gives more.
OVERLOADED_S = 1e30

# Demands that are listed. They lie closer together near the most that a backend gives, where the queue grows steeply.
# Between two of them the pace of no shipped curve is more than 7 % off, up to 99 % of that.
LISTED = 64

# While prompts are read nothing is decoded. At least such a share of the time is counted on for decoding: what leaves
# less is more than a backend can give anyway.
_LEAST_SHARE = 0.02

# By chance more are in flight than a crowd in one of so many moments. It is another number every ten or twenty seconds,
# so that this is once in half a day.
RARELY = 3000.0

# Weights beyond this are scaled down, long before a float ends.
_HEAVY = 1e200


@dataclass(frozen=True, slots=True)
class Paces:
    """One backend's pace by demand. `tok_s` are demands, rising, and `held` how many sequences are in flight in the
    mean at each. `most_tok_s` is what the backend gave with the most in flight that was measured. With any number
    beyond no more is counted on: to a speed that it reached before, and lost, it does not come back under a
    queue. `prefill_tok_s` are the prompt tokens a second that it takes in, None where that is not known."""

    curve: SpeedCurve
    prefill_tok_s: float | None = None
    lone_s: float = field(init=False, repr=False, compare=False)
    most_tok_s: float = field(init=False, repr=False, compare=False)
    tok_s: tuple[float, ...] = field(init=False, repr=False, compare=False)
    held: tuple[float, ...] = field(init=False, repr=False, compare=False)
    _speeds: tuple[float, ...] = field(init=False, repr=False, compare=False)
    _crowds: dict[int, float] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        last = min(MAX_LISTED, max(1, int(self.curve.points[-1].in_flight)))
        speeds = [self.curve.tok_s(n) for n in range(1, last + 1)]
        most = speeds[-1]
        asked = tuple(most * (1.0 - (1.0 - place / LISTED) ** 2) for place in range(LISTED))
        object.__setattr__(self, "lone_s", 1.0 / speeds[0])
        object.__setattr__(self, "most_tok_s", most)
        object.__setattr__(self, "tok_s", asked)
        object.__setattr__(self, "held", tuple(mean_held(speeds, tok_s) for tok_s in asked))
        object.__setattr__(self, "_speeds", tuple(speeds))
        object.__setattr__(self, "_crowds", {})

    def at_demand(self, tok_s: float) -> float:
        """Seconds between two tokens of a sequence while requests that come at random ask for `tok_s` a second.

        OVERLOADED_S and more where the backend was not measured to give as much in the end.
        """
        asked, held, most = self.tok_s, self.held, self.most_tok_s
        if tok_s <= 0.0:
            return self.lone_s
        if tok_s >= most:
            return OVERLOADED_S * tok_s / most
        place = bisect_left(asked, tok_s)
        if place == LISTED:  # as a queue grows
            return held[-1] * (most - asked[-1]) / (most - tok_s) / tok_s
        if place == 1:
            return held[1] / asked[1]
        below, count = asked[place - 1], held[place - 1]
        return (count + (held[place] - count) * (tok_s - below) / (asked[place] - below)) / tok_s

    def decoding(self, prompt_tok_s: float) -> float:
        """The share of the time that is left to decode in where so many tokens of prompts are read a second."""
        prefill_tok_s = self.prefill_tok_s
        return 1.0 if prefill_tok_s is None else max(_LEAST_SHARE, 1.0 - prompt_tok_s / prefill_tok_s)

    def alone(self, tok_s: float, prompts: float) -> float:
        """How many sequences are in flight in the mean while requests ask for `tok_s` a second, and for each of these
        tokens `prompts` tokens of prompts must be read. Where that is more than the backend gives: more than any engine
        runs, and the more the less it gives."""
        asked = tok_s / self.decoding(tok_s * prompts)
        pace_s = self.at_demand(asked)
        return min(MAX_LISTED, asked * pace_s) if pace_s < OVERLOADED_S else MAX_LISTED * asked / self.most_tok_s

    def demand_of(self, held: float) -> float:
        """The demand, tok/s, at which so many sequences are in flight in the mean: the inverse of `at_demand`."""
        counts, asked, most = self.held, self.tok_s, self.most_tok_s
        place = bisect_left(counts, held)
        if place == 0:
            return 0.0
        if place == LISTED:
            return most - (most - asked[-1]) * counts[-1] / held
        below, count = asked[place - 1], counts[place - 1]
        return below + (asked[place] - below) * (held - count) / (counts[place] - count)

    def at_most(self, tok_s: float, swings: float) -> float:
        """How many are in flight where requests ask for `tok_s`, but for one in RARELY moments; infinite where that is
        more than the backend gives. Where they come in bursts the number swings so many times as far."""
        asked, last = self.tok_s, LISTED - 1
        if tok_s <= 0.0 or tok_s >= self.most_tok_s:
            return 0.0 if tok_s <= 0.0 else inf
        place, part, grown = min(bisect_left(asked, tok_s), last), 1.0, 1.0
        if tok_s > asked[last]:  # as a queue grows
            grown = (self.most_tok_s - asked[last]) / (self.most_tok_s - tok_s)
        else:
            part = (tok_s - asked[place - 1]) / (asked[place] - asked[place - 1])
        mean = self.held[place - 1] + part * (self.held[place] - self.held[place - 1])
        crowd = self.crowd(place - 1) + part * (self.crowd(place) - self.crowd(place - 1))
        return grown * (mean + swings * max(0.0, crowd - mean))

    def crowd(self, place: int) -> float:
        """More than this are in flight, at the demand of that place, in one of RARELY moments. Reckoned when asked for:
        for all places that takes twice as long as all else here, and demand comes to a few of them."""
        found = self._crowds.get(place)
        if found is None:
            found = self._crowds[place] = most_held(self._speeds, self.tok_s[place])
        return found


def mean_held(speeds: Sequence[float], tok_s: float) -> float:
    """How many are in flight in the mean where `speeds` are those of 1, 2, ... sequences, the last that of any more.

    The chance of n is as tok_s^n / (X(1) X(2) ... X(n)), however long answers are, since all in flight share alike.
    """
    weight, total, counted, most = 1.0, 1.0, 0.0, speeds[-1]
    for n, speed in enumerate(speeds, 1):
        weight *= tok_s / speed
        total, counted = total + weight, counted + n * weight
        if total > _HEAVY:
            weight, total, counted = weight / total, 1.0, counted / total
    # All beyond the last: a geometric series.
    left = 1.0 - tok_s / most
    beyond = weight * (1.0 - left) / left
    return (counted + beyond * (len(speeds) + 1.0 / left)) / (total + beyond)


def most_held(speeds: Sequence[float], tok_s: float) -> float:
    """How many are in flight at most but for one in RARELY moments, by the chances of `mean_held`.

    Where each is served at the same pace that is some spreads of a count above the mean. The less an engine gains by
    one more the further the number swings, near the most that it gives to many times the mean.
    """
    if not tok_s:
        return 0.0
    logs = list(accumulate((log(tok_s / speed) for speed in speeds), initial=0.0))
    likeliest = max(logs)
    added = list(accumulate(exp(each - likeliest) for each in logs))
    ratio = tok_s / speeds[-1]
    beyond = exp(logs[-1] - likeliest) * ratio / (1.0 - ratio)
    seldom = (added[-1] + beyond) / RARELY
    if beyond > seldom:  # a geometric series
        return len(speeds) + log(seldom / beyond) / log(ratio)
    return float(bisect_left(added, added[-1] + beyond - seldom))


@lru_cache(maxsize=MAX_KEPT)
def paces(curve: SpeedCurve, prefill_tok_s: float | None = None) -> Paces:
    """The paces of one curve; of one seen lately they are not listed anew."""
    return Paces(curve, prefill_tok_s)

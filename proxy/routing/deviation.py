"""How far a backend's speed is from the measured one, as people are told it: beyond what is uncertain, and steadily.

Routing goes by the line through all evidence (belief.py), whatever its size; what is said of it is in telling/.
"""

from dataclasses import dataclass
from math import exp, inf, sqrt
from typing import NamedTuple

from proxy.routing.belief import Belief

# A difference is told from this on, in ln, and twice its standard deviation. Two runs of one benchmark differ by less,
# and nobody acts on a twentieth.
LEAST = 0.05
# Once told it is told until it is below this share of that: else it would come and go with each look.
KEPT = 0.5
# A number that is told is told anew when it has moved by more than this, in ln.
MOVED = 0.02

# Before so many looks that told anything, and with more uncertainty than this (ln), nothing is known yet.
MIN_SEEN, MOST_DEVIATION = 20, 0.10


class Standing(NamedTuple):
    """What is told of one backend: seconds for a token by those measured (`ratio`), None where it agrees with that;
    `within` is the difference, in ln, up to which it would be called to agree."""

    ratio: float | None
    within: float


@dataclass(slots=True)
class Deviation:
    """What was told of one backend up to now."""

    told: float | None = None

    def look(self, belief: Belief, seen: int, now_s: float) -> Standing | None:
        """What is to be told by now, with `seen` looks behind the belief; None where too little is known."""
        mean, variance = pooled(belief, now_s)
        if seen < MIN_SEEN or variance > MOST_DEVIATION**2:
            self.told = None
            return None
        within = max(LEAST, 2.0 * sqrt(variance))
        if abs(mean) <= (within if self.told is None else KEPT * within):
            self.told = None
        elif self.told is None or abs(mean - self.told) > MOVED:
            self.told = mean
        return Standing(None if self.told is None else exp(self.told), within)


def pooled(belief: Belief, now_s: float) -> tuple[float, float]:
    """The mean of ln(ratio) over all bins, by how well each is known, and its variance: at least that between bins,
    since what differs from load to load is no one number. Infinite without any."""
    weights = [(1.0 / each.variance(now_s), each.ln_ratio) for each in belief.bins.values()]
    total = sum(weight for weight, _ in weights)
    if not total:
        return 0.0, inf
    mean = sum(weight * ln_ratio for weight, ln_ratio in weights) / total
    between = sum(weight * (ln_ratio - mean) ** 2 for weight, ln_ratio in weights) / total
    return mean, max(1.0 / total, between)

"""How long a backend would take for a token if it served all demand alone: looked up in measured speeds.

How demand is known, and what is made of the answer, is in consolidate.py.
"""

from bisect import bisect_left
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate

from proxy.routing.curves import SpeedCurve
from proxy.routing.delays import MAX_KEPT, MAX_LISTED

# Seconds for a token where demand is more than a backend was measured to give: its queue would grow without end. Longer
# than any other, and of two that are overloaded the one that gives more is the better by as much as it gives more.
OVERLOADED_S = 1e30


@dataclass(frozen=True, slots=True)
class Paces:
    """One backend's pace by demand. `tok_s` are its speeds with 1, 2, ... sequences in flight, up to the most that was
    measured: what lies beyond is never counted on; `reached` is the highest of them so far."""

    curve: SpeedCurve
    tok_s: tuple[float, ...] = field(init=False, repr=False, compare=False)
    reached: tuple[float, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        last = min(MAX_LISTED, max(1, int(self.curve.points[-1].in_flight)))
        tok_s = tuple(self.curve.tok_s(n) for n in range(1, last + 1))
        object.__setattr__(self, "tok_s", tok_s)
        object.__setattr__(self, "reached", tuple(accumulate(tok_s, max)))

    def at_demand(self, tok_s: float) -> float:
        """Seconds between two tokens of a sequence once as many are made as are asked for, `tok_s` a second.

        By Little's law so many are in flight that X(n) = tok_s: the fewest such n, at least one. OVERLOADED_S and more
        where the backend was never measured to give as much.
        """
        more = bisect_left(self.reached, tok_s)
        if more == 0:
            return 1.0 / self.tok_s[0]
        if more == len(self.reached):
            return OVERLOADED_S * tok_s / self.reached[-1]
        below, above = self.tok_s[more - 1], self.tok_s[more]
        return (more + (tok_s - below) / (above - below)) / tok_s


@lru_cache(maxsize=MAX_KEPT)
def paces(curve: SpeedCurve, _prefill_tok_s: float | None = None) -> Paces:
    """The paces of one curve, while decoding; of one seen lately they are not listed anew."""
    return Paces(curve)

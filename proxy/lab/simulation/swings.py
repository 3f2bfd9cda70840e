"""Requests that come at random at two rates in turn, as between night and day. The plain kinds are in arrivals.py."""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from proxy.lab.simulation.arrivals import Means, Offer, Sizes, Source, open_source

_CHAT = Sizes()


@dataclass(frozen=True, slots=True)
class Alternating:
    """Poisson at `low` and at `high`, shares of what the engines can take, each for `period_s` in turn, low first."""

    low: float
    high: float
    period_s: float
    sizes: Sizes = _CHAT
    paced = False

    @property
    def name(self) -> str:
        """As on the command line."""
        return f"alternating:{self.low:g}/{self.high:g}/{self.period_s:g}"

    @property
    def load(self) -> float:
        """The mean share."""
        return (self.low + self.high) / 2.0

    @property
    def means(self) -> Means:
        """As `Arrivals.means`."""
        return self.sizes.means

    def source(self, rate_per_s: float, seed: int) -> Source:
        """As `Arrivals.source`; the rate is the mean one."""
        return open_source(self._offers(rate_per_s / self.load, Random(seed)))

    def _offers(self, full_per_s: float, rng: Random) -> Iterator[Offer]:
        rates = (self.low * full_per_s, self.high * full_per_s)
        at_s, ends_s, turn = 0.0, self.period_s, 0
        while True:
            gap_s = rng.expovariate(rates[turn])
            if at_s + gap_s < ends_s:
                at_s += gap_s
                yield self.sizes.offer(rng, at_s)
            else:  # what comes at random has no memory: the rest of the gap is drawn anew
                at_s, ends_s, turn = ends_s, ends_s + self.period_s, 1 - turn

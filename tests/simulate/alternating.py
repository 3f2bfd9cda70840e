"""Traffic that comes and goes: Poisson, at two rates in turn."""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from proxy.lab.simulation.arrivals import Means, Offer, Sizes, Source, open_source

_SIZES = Sizes()


@dataclass(frozen=True, slots=True)
class Alternating:
    """Poisson at `low` and at `high` in turn, each for `every_s` and as shares of the mean rate's double; the low one
    comes first."""

    low: float
    high: float
    every_s: float
    sizes: Sizes = _SIZES
    paced = True

    @property
    def name(self) -> str:
        """As tables have it."""
        return f"alternating:{self.low:g}/{self.high:g}/{self.every_s:g}s"

    @property
    def load(self) -> float:
        """The mean load: what to ask of a cell so that the two are the loads of their names."""
        return (self.low + self.high) / 2

    @property
    def means(self) -> Means:
        """As `Arrivals.means`."""
        return self.sizes.means

    def source(self, rate_per_s: float, seed: int) -> Source:
        """As `Arrivals.source`."""
        return open_source(self._offers(rate_per_s, Random(seed)))

    def _offers(self, rate_per_s: float, rng: Random) -> Iterator[Offer]:
        rates = [rate_per_s * share / self.load for share in (self.low, self.high)]
        at_s, phase = 0.0, 0
        while True:
            ends_s = (phase + 1) * self.every_s
            while (at_s := at_s + rng.expovariate(rates[phase % 2])) < ends_s:
                yield self.sizes.offer(rng, at_s)
            at_s, phase = ends_s, phase + 1  # what has not come by then is drawn anew: chance has no memory

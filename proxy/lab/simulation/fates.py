"""What each request meets by chance beside its size: how well it drafts, and whether its client leaves.

It is drawn apart from the requests themselves, so that these stay the same whatever is asked for here.
"""

from math import exp, inf, lgamma, log, sqrt
from random import Random

from proxy.errors import ConfigError
from proxy.lab.acceptance import Acceptance
from proxy.lab.simulation.arrivals import Offer, Source

# Half of those who leave think better of it at once, as editors do that ask at each pause in typing: on average within
# this time, most of them before the first token. The others have read enough of their answer.
RETHINK_S = 0.3

# Places at which the law of acceptance is summed; a hundred times as many change no mean by 0.1 %.
_PLACES = 2000


class Dispersion:
    """How well requests draft, as factors on the tokens of a step: the chance that a token is accepted follows a Beta
    law around its mean, and the mean time for a token stays as it is. Raises `ConfigError` where the chance cannot
    spread so far."""

    def __init__(self, tokens_per_step: float, longest: int, deviation: float) -> None:
        mean = Acceptance(tokens_per_step, longest).alpha
        weight = mean * (1.0 - mean) / deviation**2 - 1.0
        if weight <= 0:
            raise ConfigError(
                f"--dispersion {deviation:g}: the chance of acceptance is {mean:.2f} on average and cannot deviate "
                f"so far; mend: stay below {sqrt(mean * (1.0 - mean)):.2f}"
            )
        self._shape = (mean * weight, (1.0 - mean) * weight)
        self._longest = longest
        self._usual = self._mean_steps()

    def draw(self, rng: Random) -> float:
        """One request's factor."""
        return self._usual * self._tokens(rng.betavariate(*self._shape))

    def _tokens(self, chance: float) -> float:
        return sum(chance**place for place in range(self._longest))

    def _mean_steps(self) -> float:
        """Steps that a token takes on average over requests."""
        first, second = self._shape
        scale = lgamma(first + second) - lgamma(first) - lgamma(second)
        steps = weights = 0.0
        for place in range(_PLACES):
            chance = (place + 0.5) / _PLACES
            weight = exp(scale + (first - 1.0) * log(chance) + (second - 1.0) * log(1.0 - chance))
            weights += weight
            steps += weight / self._tokens(chance)
        return steps / weights


class Fated:
    """A source whose requests have each a fate of its own; the n-th has the same for the same seed."""

    __slots__ = ("_aborts", "_dispersion", "_rng", "_source")

    def __init__(self, source: Source, seed: int, aborts: float, dispersion: Dispersion | None) -> None:
        self._source = source
        self._aborts = aborts
        self._dispersion = dispersion
        self._rng = Random(f"fates of {seed}")

    @property
    def next_at_s(self) -> float:
        """As `Source.next_at_s`."""
        return self._source.next_at_s

    def take(self) -> Offer:
        """As `Source.take`."""
        rng = self._rng
        acceptance = 1.0 if self._dispersion is None else self._dispersion.draw(rng)
        leaves, at_once, late = rng.random(), rng.random(), rng.random()
        patience_s, read = inf, 1.0
        if leaves < self._aborts:
            if at_once < 0.5:
                patience_s = -RETHINK_S * log(1.0 - late)
            else:
                read = late
        return self._source.take()._replace(acceptance=acceptance, patience_s=patience_s, read=read)

    def ended(self, at_s: float, conversation: int) -> None:
        """As `Source.ended`."""
        self._source.ended(at_s, conversation)

"""What engines tell when they are polled: the truth, less than it, or lies. Runs are in learning.py."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import exp, inf, nan
from random import Random

from proxy.model import SPECULATIVE, EngineLoad, Role

Telling = Callable[[Role, EngineLoad, Random], EngineLoad | None]

# Of the six moments, those that hold time.
_TIMES = (2, 4)


def plainly(_role: Role, load: EngineLoad, _chance: Random) -> EngineLoad:
    """Their decode moments, as they are."""
    return load


def counters(_role: Role, load: EngineLoad, _chance: Random) -> EngineLoad:
    """Generated tokens alone, as vLLM."""
    return replace(load, moments=None, generated=None if load.moments is None else load.moments[5])


def nothing(_role: Role, load: EngineLoad, _chance: Random) -> EngineLoad:
    """Neither: answers are all there is."""
    return replace(load, moments=None)


def lost(_role: Role, load: EngineLoad, chance: Random) -> EngineLoad | None:
    """One poll in three goes unanswered."""
    return None if chance.random() < 1 / 3 else load


@dataclass(frozen=True, slots=True)
class Lying:
    """One engine's steps seem to take so many times as long."""

    by: float
    role: Role = SPECULATIVE

    def __call__(self, role: Role, load: EngineLoad, _chance: Random) -> EngineLoad:
        if role is not self.role or load.moments is None:
            return load
        steps, batch, us, squares, busy_us, tokens = load.moments
        return replace(load, moments=(steps, batch, self.by * us, squares, self.by * busy_us, tokens))


def broken(_role: Role, load: EngineLoad, chance: Random) -> EngineLoad:
    """Whatever a broken engine may tell: nothing, zeros, no numbers, counters begun anew, a clock that goes back."""
    told = load.moments or (0.0,) * 6
    backwards = tuple(-each for each in told)
    wrong = chance.choice([told, None, (0.0,) * 6, (nan,) * 6, (inf,) * 6, backwards, told[:3], (1e18,) * 6])
    at_s = None if load.at_s is None else load.at_s - chance.choice([0.0, 1e6])
    return replace(load, moments=wrong, at_s=at_s, ranks=chance.choice([0, 1, 1, 8]))


class Wander:
    """Scatters the steps of each look by itself, so that sums still only grow; `noise` is the standard deviation of
    ln."""

    def __init__(self, noise: float, chance: Random) -> None:
        self._noise, self._chance = noise, chance
        self._last, self._told = (0.0,) * 6, [0.0] * 6

    def scattered(self, load: EngineLoad) -> EngineLoad:
        """A load with moments as this engine tells them."""
        if not self._noise or load.moments is None:
            return load
        by = exp(self._chance.gauss(0.0, self._noise))
        for place, (old, new) in enumerate(zip(self._last, load.moments, strict=True)):
            self._told[place] += (new - old) * (by if place in _TIMES else 1.0)
        self._last = load.moments  # type: ignore[assignment]  # six of them
        return replace(load, moments=tuple(self._told))

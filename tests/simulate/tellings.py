"""What engines tell when they are polled: the truth, less than it, or lies. Runs are in learning.py."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import exp, inf, nan
from random import Random

from proxy.lab.simulation.moments import Moments
from proxy.model import SPECULATIVE, EngineLoad, Role

Telling = Callable[[Role, EngineLoad, Random], EngineLoad | None]

Clock = Callable[[], float]

# Of the six moments, those that hold time.
_TIMES = (2, 4)

# A longer pause between two steps is not taken for one.
PAUSE_S = 2.0
# Less between two stretches is no pause but how the clock counts.
_EXACT_S = 1e-9


class EveryStep(Moments):
    """An engine that counts each step, and of its time what it decodes. `starts_s` tells when a stretch began."""

    def __init__(self, starts_s: Clock) -> None:
        super().__init__()
        self._starts_s = starts_s
        self._ended_s = 0.0

    def _pause_s(self, elapsed_s: float) -> float:
        """How long nobody had decoded before a stretch that took so long."""
        now_s = self._starts_s()
        paused_s, self._ended_s = now_s - self._ended_s, now_s + elapsed_s
        return paused_s if paused_s > _EXACT_S else 0.0


class FromLaunch(EveryStep):
    """SGLang 0.5.17: a step takes from the launch of the one before, with the prompts and the idle time in between."""

    def add(self, batch: int, steps: float, elapsed_s: float, gained: float) -> None:
        """The first step of a stretch has the pause before it."""
        super().add(batch, steps, elapsed_s, gained)
        paused_s = self._pause_s(elapsed_s)
        if paused_s < PAUSE_S:
            self.time_us += 1e6 * paused_s
            self.batch_time_us += 1e6 * batch * paused_s


class Unbroken(EveryStep):
    """SGLang 0.5.23: a step that follows a prompt or idle time is left out, with its batch and its tokens."""

    _left_out = 0.0

    def add(self, batch: int, steps: float, elapsed_s: float, gained: float) -> None:
        """What is left of a stretch when the step that ends the pause before it is taken off."""
        if self._pause_s(elapsed_s):
            self._left_out = 1.0
        off = min(steps, self._left_out)
        self._left_out -= off
        if off < steps:
            share = 1.0 - off / steps
            super().add(batch, steps * share, elapsed_s * share, gained * share)


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

"""What happens in a run beside requests that come and are served, and how the command line says it.

Acceptance that changes, an engine that is lost for a while, clients that leave. When requests come is in arrivals.py,
and what each single one meets by chance in fates.py.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from math import isfinite
from typing import NamedTuple

from proxy.model import Role

# As the proxy's own `poll_interval` is by default.
POLL_S = 1.0

# Accepted lengths that were published for one model and drafter by what it was asked for.
CLASSES = {"coding": 3.32, "writing": 2.33, "roleplay": 2.01}

ACCEPTANCE_MEND = f"as in 0.55@300s, 0.55@300s,1@600s, 1/0.55@300s or {'/'.join(CLASSES)}@120s"
LOSS_MEND = "as in speculative@300s+60s: from when, and for how long"


class Level(NamedTuple):
    """What speculation gains: a share of what the curve says, or, where `absolute`, tokens per step."""

    amount: float = 1.0
    absolute: bool = False


AS_MEASURED = Level()


@dataclass(frozen=True, slots=True)
class Shifts:
    """Acceptance by time: levels from instants on; with `every_s` they begin again and again after so long. `said` is
    how the command line says it."""

    levels: tuple[tuple[float, Level], ...] = ()
    every_s: float | None = None
    said: str = ""

    def __iter__(self) -> Iterator[tuple[float, Level]]:
        """Each change in its turn; without end where they begin again."""
        for turn in count():
            for at_s, level in self.levels:
                yield at_s + turn * (self.every_s or 0.0), level
            if self.every_s is None:
                return

    @property
    def distinct(self) -> tuple[Level, ...]:
        """The levels there are, the curve's own first."""
        return tuple(dict.fromkeys((AS_MEASURED, *(level for _, level in self.levels))))


class Loss(NamedTuple):
    """An engine that dies at an instant and is back, empty, after `lasts_s`."""

    role: Role
    at_s: float
    lasts_s: float


_STEADY = Shifts()


@dataclass(frozen=True, slots=True)
class Course:
    """A run's course.

    `polled`: each engine is asked for its load every POLL_S, as the proxy does; policies that learn nothing from it are
    spared the time. `aborts` is the share of clients that leave before their answer is complete, `dispersion` the
    standard deviation between requests of the chance that a drafted token is accepted.
    """

    polled: bool = False
    shifts: Shifts = _STEADY
    losses: tuple[Loss, ...] = ()
    aborts: float = 0.0
    dispersion: float = 0.0

    @property
    def said(self) -> tuple[str, ...]:
        """What is out of the ordinary in it, as on the command line."""
        lost = ",".join(f"{loss.role}@{loss.at_s:g}s+{loss.lasts_s:g}s" for loss in self.losses)
        words = (
            self.shifts.said and f"acceptance {self.shifts.said}",
            lost and f"lose {lost}",
            self.aborts and f"aborts {self.aborts:g}",
            self.dispersion and f"dispersion {self.dispersion:g}",
        )
        return tuple(word for word in words if word)


def read_shifts(said: str) -> Shifts:
    """Acceptance by time from the command line. Raises ValueError."""
    if "/" in said:
        levels, _, each = said.partition("@")
        each_s = _seconds(each)
        if each_s <= 0:
            raise ValueError("every level needs some time")
        turns = [_level(word) for word in levels.split("/")]
        return Shifts(tuple((place * each_s, level) for place, level in enumerate(turns)), each_s * len(turns), said)
    found = []
    for word in said.split(","):
        level, _, at = word.partition("@")
        found.append((_seconds(at), _level(level)))
    if found != sorted(found, key=lambda one: one[0]):
        raise ValueError("instants must rise")
    return Shifts(tuple(found), said=said)


def read_losses(said: str) -> tuple[Loss, ...]:
    """Losses of engines from the command line. Raises ValueError."""
    return tuple(_loss(word) for word in said.split(","))


def _loss(said: str) -> Loss:
    role, _, when = said.partition("@")
    at, _, lasts = when.partition("+")
    loss = Loss(Role(role), _seconds(at), _seconds(lasts))
    if loss.lasts_s <= 0:
        raise ValueError("a loss takes some time")
    return loss


def _level(said: str) -> Level:
    if said in CLASSES:
        return Level(CLASSES[said], absolute=True)
    amount = float(said)
    if not (isfinite(amount) and amount > 0):
        raise ValueError("acceptance is a number above 0")
    return Level(amount)


def _seconds(said: str) -> float:
    seconds = float(said.removesuffix("s"))
    if not (isfinite(seconds) and seconds >= 0):
        raise ValueError("an instant is a number of seconds from 0 on")
    return seconds

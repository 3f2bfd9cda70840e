"""Where speculation stops paying, judged from paired measurements. How they were measured is not here."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from proxy.model import Role


class Contrast(NamedTuple):
    """Speculative against baseline at one concurrency.

    `log_ratio` is the mean of ln(speculative tok/s / baseline tok/s) over paired repeats, `low` and `high` its 95 %
    interval, infinite where there are too few repeats. `queued`: an engine ran fewer sequences than were asked of it.
    """

    concurrency: float
    log_ratio: float
    low: float
    high: float
    repeats: int = 1
    queued: bool = False
    predicted: bool = False


class VerdictKind(StrEnum):
    """What measurements say of speculation in one bucket of context."""

    CROSSOVER_AT = "crossover_at"
    NEVER_SPECULATE = "never_speculate"
    ALWAYS_SPECULATE = "always_speculate"
    UNKNOWN = "unknown"


class Crossing(NamedTuple):
    """One change of sign, in sequences in flight; zero difference lies somewhere from `low` to `high`."""

    at: float
    low: float
    high: float
    faster_above: Role


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer, with its evidence in one sentence."""

    kind: VerdictKind
    crossings: tuple[Crossing, ...] = ()
    reason: str = ""

"""One published curve as values: both roles' speeds, and where and how they cross. Files are in curve_files.py."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

from proxy.errors import ConfigError
from proxy.lab.step_time import FittedTime, ModelM, Point, StepTime, TableTime
from proxy.model import Role

# Where a curve does not say: what was published for three-token chains on the boxes most of these curves come from.
DEFAULT_ACCEPT_LENGTH = 2.2
DEFAULT_STEPS = 3
DEFAULT_PREFILL_TOKENS_PER_S = 8000.0

# How sources name what drafts; and what most of these curves were measured with, where one says nothing.
_METHOD = re.compile(r"EAGLE-?\d*|MTP|NEXTN|DSpark", re.IGNORECASE)
DEFAULT_METHOD = "EAGLE3"

# Published cells of one condition repeat within 1 to 3 %: two speeds nearer than this count as equal.
DEAD_BAND = 0.03


class CurveKind(StrEnum):
    """How the two roles of a curve stand to each other, seen with a dead band.

    ALWAYS and NEVER: speculation wins or loses everywhere. CROSSOVER: it wins at low concurrency and loses above, once.
    MIXED: the winner changes more than once, or the other way round. TIED: no point differs by more than the band.
    """

    ALWAYS = "always"
    CROSSOVER = "crossover"
    NEVER = "never"
    MIXED = "mixed"
    TIED = "tied"


class CurveCrossing(NamedTuple):
    """A change of the winner: the concurrency `at` which speeds are equal, and who is faster above."""

    at: float
    faster_above: Role


class Speed(NamedTuple):
    """One role's throughput, output tok/s of the whole server, with `concurrency` sequences in flight."""

    concurrency: float
    tok_s: float


@dataclass(frozen=True, slots=True)
class Curve:
    """Throughput of both roles against concurrency, with where it comes from.

    `points` are output tok/s of the whole server, rising in concurrency, where both roles are known; what only one of
    them was measured at is in `speculative_only` and `baseline_only`. `inferred` are the concurrencies that the source
    does not give. `verify_tokens` (V) and `accept_length` (tokens a sequence gains per step, the bonus token included)
    are None where nobody published them; `fit` is None where the formula does not describe the curve. `verified` is
    False where points are inferred, not measured. `num_steps` and `topk` are the drafting shape;
    `prefill_tokens_per_s` is per engine; `context_tokens` is the context of the measurement. `assumed_baseline`: only
    the ratio of the roles was published, so that the speeds in tok/s are an assumption. `assumptions` are sentences
    for the reader: what the source left open, and what was taken for it.
    """

    name: str
    hardware: str
    model: str
    engine: str
    spec_config: str
    verify_tokens: int | None
    accept_length: float | None
    points: tuple[Point, ...]
    fit: ModelM | None
    source: str
    verified: bool
    context_tokens: int = 0
    num_steps: int = DEFAULT_STEPS
    topk: int = 1
    prefill_tokens_per_s: float = DEFAULT_PREFILL_TOKENS_PER_S
    title: str = ""
    kind: str = "not given"
    workload: str | None = None
    notes: str | None = None
    speculative_only: tuple[Speed, ...] = ()
    baseline_only: tuple[Speed, ...] = ()
    inferred: frozenset[float] = frozenset()
    assumed_baseline: bool = False
    assumptions: tuple[str, ...] = ()

    @property
    def draft_tokens(self) -> int:
        """Tokens verified per sequence and step: published, or what a chain of `num_steps` verifies."""
        return self.verify_tokens or self.num_steps + 1

    @property
    def method(self) -> str:
        """What drafts, as an engine names its algorithm: `EAGLE3`, `MTP`."""
        found = _METHOD.search(self.spec_config)
        return found[0].upper().replace("-", "") if found else DEFAULT_METHOD

    @property
    def tokens_per_step(self) -> float:
        """Tokens a speculative sequence gains per step: published, fitted, or the default for chains."""
        longest = self.num_steps + 1.0
        if self.accept_length is not None:
            return min(self.accept_length, longest)
        return min(self.fit.tau if self.fit is not None else DEFAULT_ACCEPT_LENGTH, longest)

    def speeds(self, role: Role) -> tuple[Speed, ...]:
        """All that is known of one role, rising in concurrency."""
        alone = self.speculative_only if role is Role.SPECULATIVE else self.baseline_only
        return tuple(sorted([*alone, *(Speed(point.concurrency, point.of(role)) for point in self.points)]))

    def step_time(self, role: Role, *, fitted: bool = False) -> StepTime:
        """Step times of one role: from the table, or from the fit, which knows context. Raises `ConfigError`."""
        if not fitted:
            return table(self.speeds(role), role, self.tokens_per_step if role is Role.SPECULATIVE else 1.0)
        if self.fit is None:
            raise ConfigError(f"curve {self.name} has no fit; use its table (leave --fitted away)")
        return FittedTime(self.fit, role, self.context_tokens)


def table(speeds: Sequence[Speed], role: Role, tokens_per_step: float) -> TableTime:
    """The step times of one role from its own speeds: the other may have been measured elsewhere."""
    points = tuple(Point(speed.concurrency, speed.tok_s, speed.tok_s) for speed in speeds)
    return TableTime(points, role, tokens_per_step)


def slowed(curve: Curve, times: float) -> Curve:
    """The curve of the same engines, so many times slower at everything: what `--time-scale` makes of them. Its fit is
    left out."""
    return replace(
        curve,
        fit=None,
        accept_length=curve.tokens_per_step,
        points=tuple(Point(p.concurrency, p.speculative / times, p.baseline / times) for p in curve.points),
        speculative_only=tuple(Speed(at, tok_s / times) for at, tok_s in curve.speculative_only),
        baseline_only=tuple(Speed(at, tok_s / times) for at, tok_s in curve.baseline_only),
        prefill_tokens_per_s=curve.prefill_tokens_per_s / times,
    )


def crossing(curve: Curve) -> float | None:
    """The concurrency at which baseline first overtakes speculative; None where it never does so.

    The logarithm of the ratio is taken as straight between points, in the logarithm of concurrency. A curve on
    which baseline leads from the first point on has no crossing.
    """
    return next((found.at for found in crossings(curve) if found.faster_above is Role.BASELINE), None)


def crossings(curve: Curve) -> tuple[CurveCrossing, ...]:
    """Every change of the winner, rising; interpolated as `crossing` does. A tie that does not turn is none."""
    found = []
    signs = [(at, lead) for at, lead in _leads(curve) if lead != 0.0]
    for (left, lead), (right, lag) in pairwise(signs):
        if lead * lag < 0.0:
            # Among points that tie on the way, the first is where the lead was lost.
            ties = [at for at, between in _leads(curve) if left < at < right and between == 0.0]
            share = lead / (lead - lag)
            at = ties[0] if ties else left * math.pow(right / left, share)
            found.append(CurveCrossing(float(at), Role.SPECULATIVE if lag > 0.0 else Role.BASELINE))
    return tuple(found)


def kind_of(curve: Curve, margin: float = DEAD_BAND) -> CurveKind:
    """How the roles stand, taking speeds that differ by no more than `margin` (a share of baseline's) as equal."""
    wins = [lead > 0.0 for _, lead in _leads(curve) if abs(lead) > math.log1p(margin)]
    turns = [right for left, right in pairwise(wins) if left != right]
    if not wins:
        return CurveKind.TIED
    if not turns:
        return CurveKind.ALWAYS if wins[0] else CurveKind.NEVER
    return CurveKind.CROSSOVER if turns == [False] else CurveKind.MIXED


def _leads(curve: Curve) -> Iterator[tuple[float, float]]:
    """Concurrency with the logarithm of speculative by baseline."""
    return ((point.concurrency, math.log(point.speculative / point.baseline)) for point in curve.points)

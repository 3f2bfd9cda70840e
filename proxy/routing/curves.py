"""Measured speeds as routing reads them: tok/s by sequences in flight, in buckets of context. Measuring is not here."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import isfinite, log
from typing import NamedTuple

from proxy.model import Placement, Role
from proxy.routing.verdict import Contrast, Verdict

# Speeds and counts beyond these are no measurement, and quotients of them could leave the range of a float.
LEAST, MOST = 1e-6, 1e9


class SpeedPoint(NamedTuple):
    """Output tok/s of a whole backend with `in_flight` sequences decoding; `low` and `high` are its 95 % interval."""

    in_flight: float
    tok_s: float
    low: float | None = None
    high: float | None = None
    predicted: bool = False


@dataclass(frozen=True, slots=True)
class SpeedCurve:
    """Output tok/s of one backend by sequences in flight.

    Between two points it is straight in log-log. The time of a step, in flight / tok/s, never falls as more run: where
    points say so, the slower one before holds. Raises ValueError, with the mend, unless there is at least one point
    and they rise in in_flight, with finite values above zero.
    """

    points: tuple[SpeedPoint, ...]
    _at: tuple[float, ...] = field(init=False, repr=False, compare=False)
    _tok_s: tuple[float, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _refuse_odd(self.points)
        object.__setattr__(self, "_at", tuple(point.in_flight for point in self.points))
        object.__setattr__(self, "_tok_s", tuple(_kept_down(self.points)))

    def tok_s(self, n: float) -> float:
        """Output tok/s of the whole backend with `n` (above zero) in flight.

        Beyond the last point the time of a step goes on as a straight line through the last two, below the first as
        one through the first two, but never so that fewer in flight get more than the first point. One point alone
        tells no slope: throughput is the same everywhere.
        """
        at, tok_s, n = self._at, self._tok_s, max(n, LEAST)
        place = bisect_right(at, n)
        if len(at) == 1 or (place and at[place - 1] == n):
            return tok_s[max(place - 1, 0)]
        if place == 0:
            return n / max(_step_s(at, tok_s, 0, n), n / tok_s[0])
        if place == len(at):
            return n / _step_s(at, tok_s, place - 2, n)
        share = log(n / at[place - 1]) / log(at[place] / at[place - 1])
        grown: float = (tok_s[place] / tok_s[place - 1]) ** share
        return tok_s[place - 1] * grown

    def seconds_per_token(self, n: float) -> float:
        """Seconds in which each of `n` (above zero) sequences in flight gains a token."""
        return max(n, LEAST) / self.tok_s(n)

    def extrapolated(self, n: float) -> bool:
        """Whether `n` lies outside what the points span."""
        return not self._at[0] <= n <= self._at[-1]


@dataclass(frozen=True, slots=True)
class ContextCurves:
    """What was measured around one length of context, tokens; a curve is None where that backend was not measured.

    `prefill_tok_s` are the prompt tokens a second that each takes in, speculative first; None where not known.
    """

    context_tokens: int
    speculative: SpeedCurve | None
    baseline: SpeedCurve | None
    verdict: Verdict
    contrasts: tuple[Contrast, ...] = ()
    prefill_tok_s: tuple[float | None, float | None] = (None, None)

    def of(self, role: Role) -> SpeedCurve | None:
        """The curve of one role's backend."""
        return self.speculative if role is Role.SPECULATIVE else self.baseline


@dataclass(frozen=True, slots=True)
class Curves:
    """One calibration: a bucket or more of context, rising, and what was measured; `versions` are those of the engines
    where they said one. Raises ValueError, with the mend, when there is no bucket or they do not rise."""

    contexts: tuple[ContextCurves, ...]
    measured_at: str
    placement: Placement
    model: str | None = None
    versions: Mapping[Role, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        buckets = [each.context_tokens for each in self.contexts]
        if not buckets or buckets[0] < 0:
            raise ValueError("needs at least one bucket of context, of 0 tokens or more; mend: calibrate again")
        for one, other in pairwise(buckets):
            if other <= one:
                raise ValueError(
                    f"context_tokens must rise, and {other} follows {one}; mend: order them, each one once"
                )

    @property
    def whole(self) -> bool:
        """Whether every bucket has the curves of both backends, so that requests can be placed by them."""
        return not self.gaps

    @property
    def gaps(self) -> tuple[tuple[Role, int], ...]:
        """The buckets without a curve of a role: that role and the tokens of context."""
        return tuple((role, each.context_tokens) for each in self.contexts for role in Role if each.of(role) is None)

    def at_context(self, tokens: float) -> ContextCurves:
        """The bucket nearest to a context of so many tokens, by their ratio; the shorter one of two as near."""
        wanted = _ln(tokens)
        # Rounded far below a token: of two as near, the last digit must not decide.
        return min(self.contexts, key=lambda each: round(abs(_ln(each.context_tokens) - wanted), 9))


def _ln(tokens: float) -> float:
    return log(max(tokens, 1.0))


def _refuse_odd(points: Sequence[SpeedPoint]) -> None:
    if not points:
        raise ValueError("a curve needs at least one point; mend: leave the curve out where nothing was measured")
    for point in points:
        for name, value in zip(point._fields[:2], point[:2], strict=True):
            if not (isfinite(value) and LEAST <= value <= MOST):
                raise ValueError(
                    f"{name} must be above zero ({LEAST:g} to {MOST:g}), not {value:g}; mend: remove the point"
                )
    for one, other in pairwise(points):
        if other.in_flight <= one.in_flight:
            both = f"{other.in_flight:g} follows {one.in_flight:g}"
            raise ValueError(f"in_flight must rise, and {both}; mend: order the points, each in_flight once")


def _kept_down(points: Sequence[SpeedPoint]) -> list[float]:
    """The tok/s of each point, lowered where the step would be shorter than with fewer in flight."""
    kept: list[float] = []
    slowest_s = 0.0
    for point in points:
        step_s = point.in_flight / point.tok_s
        kept.append(point.tok_s if step_s >= slowest_s else point.in_flight / slowest_s)
        slowest_s = max(slowest_s, step_s)
    return kept


def _step_s(at: Sequence[float], tok_s: Sequence[float], place: int, n: float) -> float:
    """The straight line through the step times of two points, beginning with the one at `place`, carried on to `n`."""
    first_s, second_s = at[place] / tok_s[place], at[place + 1] / tok_s[place + 1]
    # Kept-down points have equal step times but for the last digit, which must not become a falling line.
    slope = max(0.0, second_s - first_s) / (at[place + 1] - at[place])
    near_s, near = (first_s, at[place]) if n < at[place] else (second_s, at[place + 1])
    return near_s + slope * (n - near)

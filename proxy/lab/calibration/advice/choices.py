"""What each way of using two backends would choose at a number in flight, and what speed follows from the curves.

What to do about it is not here (advice.py, proposal.py). Requests of equal length are taken to be in flight for ever,
spread as the way wants it: no arrivals, no queue, no prefill, so these are bounds to compare ways by.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import exp, log
from typing import NamedTuple

from proxy.lab.calibration.values import Arm, ContextFindings, Estimate
from proxy.model import Placement, Role
from proxy.routing.curves import LEAST, MOST, SpeedCurve, SpeedPoint
from proxy.routing.verdict import Verdict, band

ARM_OF = {Role.SPECULATIVE: Arm.SPECULATIVE, Role.BASELINE: Arm.BASELINE}


class Way(StrEnum):
    """A way to use the backends.

    `threshold` has one regime for all, as if the load had risen to its number; `overflow` fills speculative first;
    `marginal` puts each next request where it delays all of them least, and needs GPUs of their own for both;
    `consolidate` uses the better backend alone; `adaptive` is one instance that switches its own speculation.
    """

    ONLY_SPECULATIVE = "only speculative"
    ONLY_BASELINE = "only baseline"
    THRESHOLD = "threshold"
    OVERFLOW = "overflow"
    MARGINAL = "marginal"
    CONSOLIDATE = "consolidate"
    ADAPTIVE = "adaptive"


class Choice(NamedTuple):
    """`total` sequences in flight as a way spreads them (both counts 0: an adaptive instance has them all).

    `tok_s` is the output of all GPUs together; `pace_s` the mean over the requests of the seconds for a token.
    `extrapolated`: a count lies beyond what was measured.
    """

    way: Way
    total: int
    speculative: int
    baseline: int
    tok_s: float
    pace_s: float
    extrapolated: bool = False

    @property
    def request_tok_s(self) -> float:
        """Tok/s of one request: the inverse of the mean pace, so that a few fast ones cannot hide many slow ones."""
        return 1.0 / self.pace_s


class Gains(NamedTuple):
    """How much faster a request goes under the best way than under another: 0.1 is a tenth. `most_at` is in flight."""

    way: Way
    against: Way
    mean: float
    most: float
    most_at: int


@dataclass(frozen=True, slots=True)
class Speeds:
    """The curves of one context, and what follows when both backends are used at once.

    With GPUs of their own their speeds add up. On shared ones their steps are taken to alternate, so that each has
    half of its speed while both are busy.
    """

    curves: Mapping[Arm, SpeedCurve]
    placement: Placement
    _known: dict[tuple[Arm, int], float] = field(init=False, repr=False, compare=False, default_factory=dict)

    @property
    def whole(self) -> bool:
        """Whether both backends have a curve, so that ways can be compared."""
        return all(arm in self.curves for arm in ARM_OF.values())

    def tok_s(self, arm: Arm, n: int) -> float:
        """Speed of one arm alone with `n` in flight; 0 with none."""
        if n == 0:
            return 0.0
        if (arm, n) not in self._known:
            self._known[arm, n] = self.curves[arm].tok_s(n)
        return self._known[arm, n]

    def delay(self, arm: Arm, n: int) -> float:
        """n d(n): seconds for a token, summed over the `n` requests on one arm."""
        return n * n / self.tok_s(arm, n) if n else 0.0

    def split(self, way: Way, speculative: int, baseline: int) -> Choice:
        """What so many on each backend give."""
        counts = {Arm.SPECULATIVE: speculative, Arm.BASELINE: baseline}
        slowed = 2.0 if self.placement is Placement.SHARED and speculative and baseline else 1.0
        tok_s = sum(self.tok_s(arm, n) for arm, n in counts.items()) / slowed
        delay = sum(self.delay(arm, n) for arm, n in counts.items()) * slowed
        total = speculative + baseline
        beyond = any(n and self.curves[arm].extrapolated(n) for arm, n in counts.items())
        return Choice(way, total, speculative, baseline, tok_s, delay / total, beyond)

    def adaptive(self, total: int) -> Choice:
        """What one adaptive instance gives."""
        tok_s = self.tok_s(Arm.ADAPTIVE, total)
        beyond = self.curves[Arm.ADAPTIVE].extrapolated(total)
        return Choice(Way.ADAPTIVE, total, 0, 0, tok_s, total / tok_s, beyond)

    def marginal(self, most: int) -> list[int]:
        """How many of 0, 1, ... `most` in flight go to speculative when each next one delays all of them least."""
        filled = [0]
        for total in range(most):
            speculative, baseline = filled[-1], total - filled[-1]
            costs = (
                self.delay(Arm.SPECULATIVE, speculative + 1) - self.delay(Arm.SPECULATIVE, speculative),
                self.delay(Arm.BASELINE, baseline + 1) - self.delay(Arm.BASELINE, baseline),
            )
            filled.append(speculative + (costs[0] < costs[1]))
        return filled


def speed_curve(points: Sequence[Estimate]) -> SpeedCurve | None:
    """A measured curve as routing reads it; None where no point of it is a speed."""
    usable = {float(point.concurrency): point for point in points if _is_speed(point)}
    if not usable:
        return None
    return SpeedCurve(
        tuple(SpeedPoint(n, point.tok_s, point.low, point.high, point.predicted) for n, point in sorted(usable.items()))
    )


def speeds_of(context: ContextFindings, placement: Placement) -> Speeds:
    """The curves that one context has."""
    curves = {arm: speed_curve(points) for arm, points in context.curves.items()}
    return Speeds({arm: curve for arm, curve in curves.items() if curve is not None}, placement)


def totals_of(context: ContextFindings, placement: Placement) -> tuple[int, ...]:
    """The numbers in flight worth comparing at: doublings up to the most that was measured, on GPUs of their own on
    both together. What happened to be measured in between does not count, else a closer look would move the advice."""
    measured = {arm: [p.concurrency for p in context.curves.get(arm, ()) if _is_speed(p)] for arm in ARM_OF.values()}
    most = [max(numbers) for numbers in measured.values() if numbers]
    if not most:
        return ()
    top = sum(most) if placement is Placement.SEPARATE else max(most)
    return tuple(sorted({*(1 << place for place in range(top.bit_length())), top}))


def at(
    context: ContextFindings,
    totals: Sequence[int],
    placement: Placement,
    *,
    leave_at: int | None = None,
    overflow_at: int | None = None,
) -> tuple[Choice, ...]:
    """What each way chooses at each of `totals` (above 0), rising, ways in their order.

    `leave_at` is that of policy threshold, from the band of the verdict where it is not given; `overflow_at` that of
    policy overflow, else the best for these totals. Ways that need a curve or a crossing that is not there are left
    out, and so is marginal on shared GPUs, where using both at once only costs.
    """
    speeds = speeds_of(context, placement)
    rows: list[Choice] = []
    if speeds.whole and totals:
        leave_at = leave_at if leave_at is not None else threshold_at(context)
        overflow_at = overflow_at if overflow_at is not None else best_overflow(speeds, totals)
        filled = speeds.marginal(max(totals)) if placement is Placement.SEPARATE else []
        for total in sorted(totals):
            rows += _of_both(speeds, total, leave_at, overflow_at)
            if filled:
                rows.append(speeds.split(Way.MARGINAL, filled[total], total - filled[total]))
    else:
        rows += [one for total in sorted(totals) for one in _alone(speeds, total)]
    if Arm.ADAPTIVE in speeds.curves:
        rows += [speeds.adaptive(total) for total in totals]
    order = list(Way)
    return tuple(sorted(rows, key=lambda row: (row.total, order.index(row.way))))


def threshold_at(context: ContextFindings) -> int | None:
    """The `leave_at` that policy threshold would have; None where no crossing gives one."""
    found = band(context.contrasts, context.verdict) if crosses_down(context.verdict) else None
    return None if found is None else found.leave_at


def crosses_down(verdict: Verdict) -> bool:
    """Whether the baseline overtakes anywhere: what policies threshold and overflow are made for."""
    return any(crossing.faster_above is Role.BASELINE for crossing in verdict.crossings)


def best_overflow(speeds: Speeds, totals: Sequence[int], loads: Mapping[int, float] | None = None) -> int:
    """The `leave_at` of policy overflow with which requests go fastest, over `loads`: weights of numbers in flight.

    Without loads every one of `totals` counts alike, which is each doubling alike. The
    lowest of equal ones, since what is not sent to speculative can still go there when the baseline fails.
    """
    weights = dict.fromkeys(totals, 1.0) if loads is None else {n: share for n, share in loads.items() if n > 0}
    most = max(weights)

    def slowness(leave_at: int) -> float:
        return sum(share * log(_overflow(speeds, n, leave_at).pace_s) for n, share in weights.items())

    found = {leave_at: slowness(leave_at) for leave_at in range(1, most + 1)}
    least = min(found.values())
    return min(leave_at for leave_at, value in found.items() if value <= least + _SAME * sum(weights.values()))


# Differences in ln(pace) that no measurement shows: within them the lower limit is taken.
_SAME = 1e-6


def gains(rows: Sequence[Choice], way: Way, against: Way) -> Gains | None:
    """How much faster requests go by `way` than by `against`, over the totals that both have; None without any."""
    ours, theirs = ({row.total: row.pace_s for row in rows if row.way is one} for one in (way, against))
    ratios = {n: log(theirs[n] / pace_s) for n, pace_s in ours.items() if n in theirs}
    if not ratios:
        return None
    most_at = max(ratios, key=lambda n: (ratios[n], -n))
    return Gains(way, against, exp(sum(ratios.values()) / len(ratios)) - 1, exp(ratios[most_at]) - 1, most_at)


def best_way(placement: Placement) -> Way:
    """What Crossover can do at best with known curves."""
    return Way.MARGINAL if placement is Placement.SEPARATE else Way.CONSOLIDATE


def best_single(rows: Sequence[Choice]) -> Way | None:
    """Which backend alone serves better over all totals; None where one of them has no curve."""
    lead = gains(rows, Way.ONLY_SPECULATIVE, Way.ONLY_BASELINE)
    if lead is None:
        return None
    return Way.ONLY_SPECULATIVE if lead.mean > 0 else Way.ONLY_BASELINE


def _of_both(speeds: Speeds, total: int, leave_at: int | None, overflow_at: int) -> Iterator[Choice]:
    alone = tuple(_alone(speeds, total))
    yield from alone
    if leave_at is not None:
        yield alone[total >= leave_at]._replace(way=Way.THRESHOLD)
    yield _overflow(speeds, total, overflow_at)
    yield min(alone, key=lambda one: one.pace_s)._replace(way=Way.CONSOLIDATE)


def _alone(speeds: Speeds, total: int) -> Iterator[Choice]:
    if Arm.SPECULATIVE in speeds.curves:
        yield speeds.split(Way.ONLY_SPECULATIVE, total, 0)
    if Arm.BASELINE in speeds.curves:
        yield speeds.split(Way.ONLY_BASELINE, 0, total)


def _overflow(speeds: Speeds, total: int, leave_at: int) -> Choice:
    speculative = min(total, leave_at)
    return speeds.split(Way.OVERFLOW, speculative, total - speculative)


def _is_speed(point: Estimate) -> bool:
    return LEAST <= point.tok_s <= MOST and point.concurrency >= 1

"""Where speculation stops paying, judged from paired measurements. How they were measured is not here."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from math import ceil, exp, floor, inf, isfinite, isinf, isnan, log
from typing import NamedTuple

from proxy.model import BASELINE, SPECULATIVE, Role

# How much further than its 95 % half-width the mean of a cell must be from zero to be believed alone. At 1.0 one equal
# cell in twenty would be, so most sweeps of sixteen would tell a difference that is none; at 2.0 a real cliff of one
# cell, measured six times, is missed too often.
ALONE_HALF_WIDTHS = 1.5

# Below three repeats the t-interval is so wide (12.7 standard errors for two) that it says nothing; what is given for
# fewer was assumed.
MIN_REPEATS = 3

# Per cents above a hundred are hard to read as speeds.
TWICE = 2.0

# Far below a sequence, far above what exp and log lose: a crossing at 6 must not become 7 by its last digit.
ROUNDING = 1e-9


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

    @property
    def half_width(self) -> float:
        """Half of the interval's length, in ln; infinite where there are too few repeats."""
        return inf if isinf(self.low) or isinf(self.high) else abs(self.high - self.low) / 2.0

    @property
    def sign(self) -> int:
        """1 where the interval is above zero (speculative is faster), -1 where it is below, 0 where it is neither."""
        if min(self.low, self.log_ratio, self.high) > 0.0:
            return 1
        return -1 if max(self.low, self.log_ratio, self.high) < 0.0 else 0


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
    """The answer, with its evidence in one sentence. `assumed`: a crossing rests on an assumed interval."""

    kind: VerdictKind
    crossings: tuple[Crossing, ...] = ()
    reason: str = ""
    assumed: bool = False


class Band(NamedTuple):
    """Thresholds in sequences in flight between which the two hardly differ; always enter_at < leave_at."""

    enter_at: int
    leave_at: int


def judge(contrasts: Sequence[Contrast], *, margin: float = 0.03) -> Verdict:
    """The verdict on contrasts in any order; `margin`, in ln, is the difference that does not count.

    A cell is sure where its interval excludes zero, tied where that lies within the margin, else open. A sure cell is
    believed where a neighbour is sure of the same, or where it stands alone beyond the margin with half as much room
    again as its interval takes. Between two neighbouring believed cells of different sign there is a crossing; cells
    between them that are not believed widen its interval. Believed cells of one sign alone make always or never, unless
    the interval of another cell leaves room for twice the margin on the other side: then it is not known. Raises
    ValueError for a number that is none, and for a concurrency that is not above zero.
    """
    cells = sorted(contrasts, key=lambda cell: cell.concurrency)
    _refuse_odd(cells)
    signs = list(_believed(cells, margin))
    believed = [cell for cell, sign in zip(cells, signs, strict=True) if sign]
    if not believed:
        return Verdict(VerdictKind.UNKNOWN, reason=_why_unknown(cells, margin))
    crossings = tuple(_crossings(cells, signs))
    left = [f"{cell.concurrency:g}" for cell, sign in zip(cells, signs, strict=True) if not sign]
    undecided = f"; undecided at {', '.join(left)}" if left else ""
    if crossings:
        reason = _why_crossing(believed) + undecided
        return Verdict(VerdictKind.CROSSOVER_AT, crossings, reason, has_assumed(crossings, cells))
    side = believed[0].sign
    if any(_leaves_room(cell, side, 2.0 * margin) for cell, sign in zip(cells, signs, strict=True) if not sign):
        doubt = f"{_why_one_sided(believed)}{undecided}; measure more repeats there"
        return Verdict(VerdictKind.UNKNOWN, reason=doubt)
    kind = VerdictKind.ALWAYS_SPECULATE if side > 0 else VerdictKind.NEVER_SPECULATE
    return Verdict(kind, reason=_why_one_sided(believed) + undecided)


def band(contrasts: Sequence[Contrast], verdict: Verdict, *, min_contrast: float = 0.05) -> Band | None:
    """Thresholds for policy `threshold`, around the first crossing above which baseline is faster; None without one.

    Between them the mean difference is smaller than its half-width or than `min_contrast` (ln), so that a change of
    regime would gain nothing; a cell too seldom measured for an interval counts from twice that on. Where speculation
    is never clearly faster below the crossing, enter_at is 0; where baseline is never clearly faster above it, leave_at
    is the last concurrency before speculation is faster again.
    """
    crossings = verdict.crossings
    place = next((i for i, crossing in enumerate(crossings) if crossing.faster_above is BASELINE), None)
    if place is None:
        return None
    at, least, most = crossings[place].at, 0.0, inf
    if place:
        least = crossings[place - 1].at
    if place + 1 < len(crossings):
        most = crossings[place + 1].at
    cells = sorted(contrasts, key=lambda cell: cell.concurrency)
    falling = [cell for cell in reversed(cells) if least <= cell.concurrency <= at]
    rising = [cell for cell in cells if at < cell.concurrency <= most]
    below = _clear_from([*rising[:1], *falling], 1, min_contrast)
    above = _clear_from([*falling[:1], *rising], -1, min_contrast)
    if above is None:
        above = most if isfinite(most) else max([crossings[place].high, *(cell.concurrency for cell in rising)])
    leave_at = max(1, ceil(above - ROUNDING))
    return Band(min(floor((least if below is None else below) + ROUNDING), leave_at - 1), leave_at)


def describe(verdict: Verdict) -> str:
    """The verdict in one sentence for people."""
    if verdict.kind is VerdictKind.CROSSOVER_AT and verdict.crossings:
        first, *more = verdict.crossings
        span = (
            f"about {_span(first)}: too few repeats for a 95 % interval"
            if verdict.assumed
            else f"95 % interval {_span(first)}"
        )
        where = f"{_place(first)} sequences in flight ({span})"
        later = [f", {_name(each.faster_above).lower()} at {_place(each)} ({_span(each)})" for each in more]
        return f"{_name(first.faster_above)} overtakes at {where}{''.join(later)}."
    heads = {VerdictKind.NEVER_SPECULATE: "Never speculate", VerdictKind.ALWAYS_SPECULATE: "Always speculate"}
    head = heads.get(verdict.kind, "Not known where speculation stops paying")
    return f"{head}: {verdict.reason}." if verdict.reason else f"{head}."


def has_assumed(crossings: Sequence[Crossing], contrasts: Sequence[Contrast]) -> bool:
    """Whether a crossing's span ends at a contrast that was predicted, or measured too seldom for an interval."""
    ends = {end for crossing in crossings for end in (crossing.low, crossing.high)}
    return any(cell.concurrency in ends and (cell.predicted or cell.repeats < MIN_REPEATS) for cell in contrasts)


# ---------------------------------------------------------------- judging


def _refuse_odd(cells: Sequence[Contrast]) -> None:
    for cell in cells:
        if not (cell.concurrency > 0.0 and isfinite(cell.concurrency) and isfinite(cell.log_ratio)):
            raise ValueError(f"a contrast needs a concurrency above zero and a finite mean, not {cell}; leave it out")
        if isnan(cell.low) or isnan(cell.high):
            raise ValueError(f"an interval that is not known is -inf to inf, not {cell.low} to {cell.high}")


def _believed(cells: Sequence[Contrast], margin: float) -> Iterator[int]:
    """The sign of each cell that may speak, 0 for the others."""
    signs = [0, *(cell.sign for cell in cells), 0]
    for cell, before, sign, after in zip(cells, signs, signs[1:], signs[2:], strict=False):
        alone = abs(cell.log_ratio) > max(margin, ALONE_HALF_WIDTHS * cell.half_width)
        yield sign if sign in (before, after) or alone else 0


def _leaves_room(cell: Contrast, side: int, ratio: float) -> bool:
    """Whether a cell may differ by more than `ratio` (ln) to the side that the others are not on."""
    return -min(cell.low, cell.log_ratio) > ratio if side > 0 else max(cell.high, cell.log_ratio) > ratio


def _crossings(cells: Sequence[Contrast], signs: Sequence[int]) -> Iterator[Crossing]:
    places = [index for index, sign in enumerate(signs) if sign]
    for below, above in pairwise(places):
        if signs[below] != signs[above]:
            low, high = cells[below].concurrency, cells[above].concurrency
            at = min(max(_first_zero(cells[below : above + 1]), low), high)
            yield Crossing(at, low, high, SPECULATIVE if signs[above] > 0 else BASELINE)


def _first_zero(cells: Sequence[Contrast]) -> float:
    """Where the line through the means, straight in ln of concurrency, first leaves the side it begins on."""
    side = cells[0].sign
    for one, other in pairwise(cells):
        if other.log_ratio * side <= 0.0:
            return _between(one, other, one.log_ratio, other.log_ratio)
    return cells[-1].concurrency


def _between(one: Contrast, other: Contrast, first: float, second: float) -> float:
    """The concurrency where a line from `first` at the one to `second` at the other is zero, straight in ln."""
    share = first / (first - second) if first != second else 0.0
    return exp(log(one.concurrency) + share * (log(other.concurrency) - log(one.concurrency)))


# ---------------------------------------------------------------- the band


def _clear_from(cells: Sequence[Contrast], side: int, min_contrast: float) -> float | None:
    """Walking away from a crossing: the concurrency from which the difference on that side is clear; None: nowhere.

    The first cell is the one on the other side of the crossing.
    """
    for one, other in pairwise(cells):
        clear = side * other.log_ratio - _blur(other, min_contrast)
        if clear >= 0.0:
            short = side * one.log_ratio - _blur(one, min_contrast)
            known = isfinite(one.half_width) and isfinite(other.half_width)
            return _between(other, one, clear, short) if known else other.concurrency
    return None


def _blur(cell: Contrast, min_contrast: float) -> float:
    """What a difference has to exceed to be worth a change of regime, ln."""
    return max(cell.half_width, min_contrast) if isfinite(cell.half_width) else 2.0 * min_contrast


# ---------------------------------------------------------------- words


def _why_unknown(cells: Sequence[Contrast], margin: float) -> str:
    if not cells:
        return "nothing was measured on both"
    if all(-margin < cell.low and cell.high < margin for cell in cells):
        return f"the two do not differ by more than {100 * margin:.3g} %"
    widths = [cell.half_width for cell in cells if isfinite(cell.half_width)]
    if not widths:
        return "no concurrency was measured often enough for an interval: give it more time"
    widest = f"intervals reach ±{100 * max(widths):.3g} % and no two neighbouring concurrencies agree on a difference"
    return f"too noisy: {widest}; measure more repeats, or longer windows"


def _why_one_sided(believed: Sequence[Contrast]) -> str:
    first, last = believed[0], believed[-1]
    if len(believed) == 1:
        return f"speculation is {_pace(first)} at {first.concurrency:g} in flight"
    ends = f"{_pace(first)} at {first.concurrency:g} in flight and {_pace(last)} at {last.concurrency:g}"
    side = "faster" if first.sign > 0 else "slower"
    return f"speculation is {ends}, and {side} at each of {len(believed)} concurrencies"


def _why_crossing(believed: Sequence[Contrast]) -> str:
    turns = dict.fromkeys(cell for pair in pairwise(believed) if pair[0].sign != pair[1].sign for cell in pair)
    first, *more = turns
    later = (f", {_pace(cell)} at {cell.concurrency:g}" for cell in more)
    return f"speculation is {_pace(first)} at {first.concurrency:g} in flight{''.join(later)}"


def _pace(cell: Contrast) -> str:
    """How much faster or slower speculation is: `12.7 % slower`, and from twice as fast on `3.42 times as fast`."""
    ratio = exp(max(-700.0, min(cell.log_ratio, 700.0)))  # beyond these exp overflows
    if ratio >= TWICE:
        return f"{ratio:.3g} times as fast"
    return f"{100.0 * abs(ratio - 1.0):.3g} % {'faster' if ratio > 1.0 else 'slower'}"


def _name(role: Role) -> str:
    return "Baseline" if role is BASELINE else "Speculation"


def _place(crossing: Crossing) -> int:
    """The first whole number from which the other one is faster."""
    return ceil(crossing.at - ROUNDING)


def _span(crossing: Crossing) -> str:
    return f"{crossing.low:g} to {crossing.high:g}"

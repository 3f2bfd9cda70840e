"""What a quick run measures: the baseline's curve, two speculative probes, and then what the law's verdict hangs on.

The law (law.py) fills in the rest of the speculative curve; what is predicted stays marked as predicted. Every cell is
measured once or twice, so intervals are assumed and not measured; a full run is for those who need them.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from proxy.lab.calibration.deciding.aim import Aim
from proxy.lab.calibration.deciding.estimates import Book
from proxy.lab.calibration.deciding.law import PREDICTED_HALF_WIDTH, Law, Probe, fit
from proxy.lab.calibration.deciding.past import Past, pair
from proxy.lab.calibration.deciding.plan import CLOSE_ENOUGH, Stage, Step
from proxy.lab.calibration.values import Arm, ArmFacts, Cell, Estimate, Measurement, Span
from proxy.routing.curves import SpeedCurve, SpeedPoint
from proxy.routing.verdict import ALONE_HALF_WIDTHS, MIN_REPEATS, Contrast, VerdictKind, judge

# Doublings: between two of them a curve is near enough to a straight line in log-log.
QUICK_CONCURRENCIES = (1, 2, 4, 8, 16, 32, 64)

QUICK_SPAN = Span(1.5, 5.0)

# Less than three minutes with starting and writing.
QUICK_BUDGET_S = 150.0

# Predicted cells that are measured after all where the law sees no crossing: at the edge that might hide one.
_VERIFY_UP_TO = 3


def next_quick_step(
    aim: Aim, facts: Mapping[Arm, ArmFacts], done: Sequence[Measurement], spent_s: float
) -> Step | None:
    """What to measure next; None when the verdict hangs on nothing predicted, or the budget is spent."""
    past = Past(done)
    wanted = next(_wanted(aim, facts, past), None)
    if wanted is None:
        return None
    stage, cells = wanted
    fits = spent_s + len(cells) * past.cost_s(QUICK_SPAN) <= aim.budget_s
    return Step(stage, cells, QUICK_SPAN) if fits else None


def left_at_quick(aim: Aim, facts: Mapping[Arm, ArmFacts], done: Sequence[Measurement]) -> Stage | None:
    """The stage whose cells would come next, whatever they cost; None when there is nothing more to ask."""
    return next((stage for stage, _ in _wanted(aim, facts, Past(done))), None)


def quick_grid(aim: Aim) -> tuple[int, ...]:
    """The concurrencies asked for, its ends always; of too many those that lie nearest to even ratios."""
    asked = sorted(set(aim.concurrencies))
    most = len(QUICK_CONCURRENCIES)
    if len(asked) <= most:
        return tuple(asked)
    each = math.log(asked[-1] / asked[0]) / (most - 1)
    places = [math.log(asked[0]) + each * step for step in range(most)]
    return tuple(sorted({min(asked, key=lambda one: abs(math.log(one) - place)) for place in places}))


def predict(book: Book, facts: Mapping[Arm, ArmFacts], measurements: Sequence[Measurement]) -> Law | None:
    """The law through what a condition has of both arms; None while either is missing."""
    baseline = [one for one in book.curve(Arm.BASELINE) if not one.queued]
    probes = [one for one in book.curve(Arm.SPECULATIVE) if not one.queued]
    if not baseline or not probes:
        return None
    curve = SpeedCurve(tuple(SpeedPoint(one.concurrency, one.tok_s) for one in baseline))
    told = facts.get(Arm.SPECULATIVE)
    gains = [
        one.tokens_per_step or one.accept_length
        for one in measurements
        if one.cell.arm is Arm.SPECULATIVE and one.cell.condition == book.condition and one.usable
    ]
    known = [gain for gain in gains if gain]
    tau = sum(known) / len(known) if known else None
    width = told.draft_tokens if told is not None else None
    return fit(curve, [Probe(one.concurrency, one.tok_s) for one in probes], tau, width)


def completed(
    book: Book, law: Law | None, limit: int | None = None
) -> tuple[tuple[Estimate, ...], tuple[Contrast, ...]]:
    """The speculative curve and the contrasts of a quick run: measured where it was, predicted where only the baseline
    was measured. `limit` is the most sequences that the speculative engine runs at once."""
    curve = {one.concurrency: one for one in book.curve(Arm.SPECULATIVE)}
    contrasts = {one.concurrency: one for one in book.contrasts(Arm.SPECULATIVE, Arm.BASELINE, quick=True)}
    for base in book.curve(Arm.BASELINE) if law is not None else ():
        if base.concurrency in curve or law is None:
            continue
        speed = law.tok_s(min(base.concurrency, limit or base.concurrency))
        queued = base.queued or (limit is not None and base.concurrency > limit)
        curve[base.concurrency] = Estimate(base.concurrency, speed, queued=queued, predicted=True)
        ratio = math.log(speed / base.tok_s)
        low, high = ratio - PREDICTED_HALF_WIDTH, ratio + PREDICTED_HALF_WIDTH
        contrasts[base.concurrency] = Contrast(base.concurrency, ratio, low, high, 0, queued, predicted=True)
    return tuple(curve[at] for at in sorted(curve)), tuple(contrasts[at] for at in sorted(contrasts))


def _wanted(aim: Aim, facts: Mapping[Arm, ArmFacts], past: Past) -> Iterator[tuple[Stage, tuple[Cell, ...]]]:
    """Everything that is worth measuring now, the most needed first; never a cell that is over."""
    grid = quick_grid(aim)
    for stage, group in _asked(aim, facts, past, grid):
        cells = tuple(cell for cell in group if not past.over(cell) and not past.beyond(cell, grid[-1]))
        if cells:
            yield stage, cells


def _asked(
    aim: Aim, facts: Mapping[Arm, ArmFacts], past: Past, grid: Sequence[int]
) -> Iterator[tuple[Stage, tuple[Cell, ...]]]:
    for context in aim.contexts:
        condition = aim.main(context)
        for place, concurrency in enumerate(grid):
            arms = aim.arms if place < 2 else tuple(arm for arm in aim.arms if arm is not Arm.SPECULATIVE)
            cells = pair(aim, condition, concurrency, 0, arms)
            yield (Stage.PROBE if place < 2 else Stage.SWEEP), cells[::-1] if place == 1 else cells
        if not aim.contrasting:
            continue
        book = past.book(condition)
        told = facts.get(Arm.SPECULATIVE)
        limit = told.max_running_requests if told is not None else None
        _, contrasts = completed(book, predict(book, facts, past.done), limit)
        for concurrency in _hanging(contrasts):
            yield Stage.VERIFY, pair(aim, condition, concurrency, 0)
        for contrast in _undecided(contrasts):
            yield Stage.VERIFY, pair(aim, condition, int(contrast.concurrency), contrast.repeats)


def _undecided(contrasts: Sequence[Contrast]) -> Iterator[Contrast]:
    """Cells whose repeat might decide a verdict that is not known yet, the likeliest first."""
    if judge(contrasts).kind is VerdictKind.UNKNOWN:
        measured = [one for one in contrasts if 0 < one.repeats < MIN_REPEATS]
        unclear = [one for one in measured if abs(one.log_ratio) <= ALONE_HALF_WIDTHS * one.half_width]
        yield from sorted(unclear, key=lambda one: abs(one.log_ratio) / one.half_width, reverse=True)


def _hanging(contrasts: Sequence[Contrast]) -> Iterator[int]:
    """Where to measure both arms next, the most telling first: predicted edges of a crossing, then between them."""
    verdict = judge(contrasts)
    by_place = {one.concurrency: one for one in contrasts}
    for crossing in verdict.crossings:
        edges = (by_place[crossing.low], by_place[crossing.high])
        for edge in sorted((one for one in edges if one.predicted), key=lambda one: abs(one.log_ratio)):
            yield int(edge.concurrency)
    for crossing in verdict.crossings[:1]:
        inside = [one for one in contrasts if crossing.low <= one.concurrency <= crossing.high]
        yield from _nearest_to_zero(inside)
        for left, right in pairwise(inside):
            close = right.concurrency - left.concurrency <= 1 or right.concurrency / left.concurrency <= CLOSE_ENOUGH
            if left.log_ratio * right.log_ratio <= 0.0 and not close:
                yield round(math.sqrt(left.concurrency * right.concurrency))
    if verdict.kind is not VerdictKind.CROSSOVER_AT:
        yield from _edge_first(contrasts)


def _edge_first(contrasts: Sequence[Contrast]) -> Iterator[int]:
    """Where no crossing is seen: the highest, where one would come last, then whatever the law is not sure of; where
    it is sure of all, a few all the same."""
    predicted = [one for one in contrasts if one.predicted]
    unsure = [one for one in predicted if one.low < 0.0 < one.high]
    measured = sum(1 for one in contrasts if not one.predicted) - 2
    if unsure or measured < _VERIFY_UP_TO:
        yield from (int(one.concurrency) for one in predicted[-1:])
        yield from _nearest_to_zero(unsure or predicted)


def _nearest_to_zero(contrasts: Sequence[Contrast]) -> Iterator[int]:
    predicted = [one for one in contrasts if one.predicted]
    yield from (int(one.concurrency) for one in sorted(predicted, key=lambda one: abs(one.log_ratio)))

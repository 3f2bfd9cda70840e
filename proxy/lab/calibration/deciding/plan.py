"""What to measure next: a pure function of the aim, of what is measured, and of the time that was spent.

Nothing is remembered between two questions, so a run that was cut goes on by asking again. Sweeps come first, up and
down by turns with the arms in turn (ABBA), then every change of sign is closed in on, then side conditions, then more
repeats where the interval is still too wide. Repeats end when an interval is narrow enough, never because it excludes
zero: looking again until something is significant finds crossovers that are not there.
Quick runs have a plan of their own (quick.py).
"""

import math
from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

from proxy.lab.calibration.deciding.aim import Aim, grid_of, span_of
from proxy.lab.calibration.deciding.estimates import Book
from proxy.lab.calibration.deciding.past import Past, pair
from proxy.lab.calibration.values import Arm, Cell, Condition, Ending, Measurement, Prefix, Span
from proxy.routing.verdict import MIN_REPEATS, Contrast, Crossing, judge

# Beyond this many repeats the interval shrinks by less than a tenth a repeat.
MAX_REPEATS = 8

# Repeats that only one arm has make no pair. After three of them at a concurrency it is that arm's doing.
_MAX_UNPAIRED = 3


# Two concurrencies closer than this are one for routing: no threshold is worth half of a tenth.
CLOSE_ENOUGH = 1.1


_SIDE_SHARE = 0.2


# A mean this many half-widths away from zero keeps its sign whatever further repeats say.
_CLEAR = 3.0

# Half of an interval wider than this makes a poor curve, whatever it says of the sign.
_POOR = 0.05


class Stage(StrEnum):
    """Why a cell is measured."""

    SWEEP = "sweep"
    CLOSE_IN = "close_in"
    SIDE = "side"
    REPEAT = "repeat"
    PROBE = "probe"
    VERIFY = "verify"


class Step(NamedTuple):
    """Cells to measure one after the other, all of one concurrency, and for how long each."""

    stage: Stage
    cells: tuple[Cell, ...]
    span: Span


def next_step(aim: Aim, done: Sequence[Measurement], spent_s: float) -> Step | None:
    """What to measure next; None when all is known well enough or the budget does not hold another cell."""
    span, past = span_of(aim), Past(done)
    wanted = next(_wanted(aim, past), None)
    if wanted is None:
        return None
    stage, cells = wanted
    return Step(stage, cells, span) if spent_s + len(cells) * past.cost_s(span) <= aim.budget_s else None


def left_at(aim: Aim, done: Sequence[Measurement]) -> Stage | None:
    """The stage whose cells would come next, whatever they cost; None when there is nothing more to ask."""
    return next((stage for stage, _ in _wanted(aim, Past(done))), None)


def _wanted(aim: Aim, past: Past) -> Iterator[tuple[Stage, tuple[Cell, ...]]]:
    """Everything that is worth measuring now, the most needed first; never a cell that is over."""
    grid = grid_of(aim)
    stages = (
        (Stage.SWEEP, _sweeps(aim, grid)),
        (Stage.CLOSE_IN, _crossings(aim, past)),
        (Stage.SIDE, _sides(aim, past)),
        (Stage.REPEAT, _repeats(aim, past)),
    )
    for stage, groups in stages:
        for group in groups:
            cells = tuple(cell for cell in group if not past.over(cell) and not _left_out(past, stage, cell, grid[-1]))
            if cells:
                yield stage, cells


def _left_out(past: Past, stage: Stage, cell: Cell, top: int) -> bool:
    """Whether a cell would tell nothing: a queue is looked at once, except where a crossing lies within it."""
    return past.fails(cell) if stage is Stage.CLOSE_IN else past.beyond(cell, top)


def _sweeps(aim: Aim, grid: Sequence[int]) -> Iterator[tuple[Cell, ...]]:
    for repeat in range(MIN_REPEATS):
        for context in aim.contexts:
            for concurrency in grid[::-1] if repeat % 2 else grid:
                yield pair(aim, aim.main(context), concurrency, repeat)


def _crossings(aim: Aim, past: Past) -> Iterator[tuple[Cell, ...]]:
    """New concurrencies between two signs, and more repeats of those whose sign is not sure."""
    for condition, book, contrasts in _mains(aim, past):
        for crossing in judge(contrasts).crossings:
            if crossing.high - crossing.low <= 1 or crossing.high / crossing.low <= CLOSE_ENOUGH:
                continue
            inside = [one for one in contrasts if crossing.low <= one.concurrency <= crossing.high]
            for contrast in inside:
                # Else each repeat of a noisy cell would move the next middle, and none be measured often enough.
                if contrast.repeats < MIN_REPEATS and _repeatable(book, contrast):
                    yield pair(aim, condition, int(contrast.concurrency), _next_repeat(book, contrast))
            middle = _middle(inside)
            if middle is not None:
                yield pair(aim, condition, middle, 0)
            for contrast in _open(book, inside, crossing, aim.precision):
                yield pair(aim, condition, int(contrast.concurrency), _next_repeat(book, contrast))
            for place in _ends(inside):
                yield pair(aim, condition, place, 0)


def _middle(inside: Sequence[Contrast]) -> int | None:
    """A concurrency halfway between two neighbours whose means differ in sign."""
    found = (_halfway(one, other) for one, other in pairwise(inside) if one.log_ratio * other.log_ratio <= 0.0)
    return next((place for place in found if place is not None), None)


def _ends(inside: Sequence[Contrast]) -> Iterator[int]:
    """Halfway between each sure end and the first cell inside that cannot be told from zero: the end may be nearer."""
    for one, other in (inside[:2], inside[-2:]):
        place = _halfway(one, other)
        if place is not None:
            yield place


def _halfway(one: Contrast, other: Contrast) -> int | None:
    """The whole number in the middle, by logarithms; None where the two are neighbours or near enough."""
    if other.concurrency - one.concurrency <= 1 or other.concurrency / one.concurrency <= CLOSE_ENOUGH:
        return None
    middle = round(math.sqrt(one.concurrency * other.concurrency))
    return int(min(max(middle, one.concurrency + 1), other.concurrency - 1))


def _open(book: Book, inside: Sequence[Contrast], crossing: Crossing, precision: float) -> Iterator[Contrast]:
    for one in inside:
        if crossing.low < one.concurrency < crossing.high and _wide(one, precision) and _repeatable(book, one):
            yield one


def _sides(aim: Aim, past: Past) -> Iterator[tuple[Cell, ...]]:
    """Other prompts, a cold cache and natural endings, alone and at the crossing: do they tell another story?"""
    spent_s = sum(one.spent_s for one in past.done if one.cell.condition not in {aim.main(c) for c in aim.contexts})
    if spent_s > _SIDE_SHARE * aim.budget_s:
        return
    concurrencies = (1, _middle_of_interest(aim, past))
    for repeat in range(MIN_REPEATS):
        for condition in side_conditions(aim):
            for concurrency in sorted(set(concurrencies)):
                yield pair(aim, condition, concurrency, repeat)


def side_conditions(aim: Aim) -> tuple[Condition, ...]:
    """What is looked at beside the main condition of the first context."""
    main = aim.main(aim.contexts[0])
    return (
        *(main._replace(prompts=prompts) for prompts in aim.prompts[1:]),
        main._replace(prefix=Prefix.COLD),
        main._replace(ending=Ending.NATURAL),
    )


def _middle_of_interest(aim: Aim, past: Past) -> int:
    """The first crossing, else the middle of the grid."""
    for _, _, contrasts in _mains(aim, past):
        crossings = judge(contrasts).crossings
        if crossings:
            return max(2, round(crossings[0].at))
    grid = grid_of(aim)
    return grid[len(grid) // 2]


def _repeats(aim: Aim, past: Past) -> Iterator[tuple[Cell, ...]]:
    """One more repeat where the interval is widest for what it has to tell."""
    wide = []
    for condition, book, contrasts in _mains(aim, past):
        for contrast in contrasts:
            if _repeatable(book, contrast) and _worth_repeating(contrast, aim.precision):
                wide.append((_half(contrast), condition, int(contrast.concurrency), _next_repeat(book, contrast)))
    for _, condition, concurrency, repeat in sorted(wide, key=lambda one: one[0], reverse=True):
        yield pair(aim, condition, concurrency, repeat)


def _mains(aim: Aim, past: Past) -> Iterator[tuple[Condition, Book, tuple[Contrast, ...]]]:
    for context in aim.contexts if aim.contrasting else ():
        condition = aim.main(context)
        book = past.book(condition)
        yield condition, book, book.contrasts(Arm.SPECULATIVE, Arm.BASELINE)


def _worth_repeating(contrast: Contrast, precision: float) -> bool:
    clear = abs(contrast.log_ratio) > _CLEAR * _half(contrast)
    return _half(contrast) > _POOR or (_wide(contrast, precision) and not clear)


def _wide(contrast: Contrast, precision: float) -> bool:
    return _half(contrast) > precision


def _half(contrast: Contrast) -> float:
    return (contrast.high - contrast.low) / 2.0


def _repeatable(book: Book, contrast: Contrast) -> bool:
    """Whether another pair may be had: not too many are there, nor did one arm fail in too many."""
    unpaired = _next_repeat(book, contrast) - contrast.repeats
    return contrast.repeats < MAX_REPEATS and unpaired < _MAX_UNPAIRED


def _next_repeat(book: Book, contrast: Contrast) -> int:
    concurrency = int(contrast.concurrency)
    tried = [*book.repeats(concurrency, Arm.SPECULATIVE), *book.repeats(concurrency, Arm.BASELINE)]
    return max(tried) + 1

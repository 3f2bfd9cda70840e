"""What to measure next: a pure function of the aim, of what is measured, and of the time that was spent.

Nothing is remembered between two questions, so a run that was cut goes on by asking again. Sweeps come first, up and
down by turns with the arms in turn (ABBA), then every change of sign is closed in on, then side conditions, then more
repeats where the interval is still too wide. Repeats end when an interval is narrow enough, never because it excludes
zero: looking again until something is significant finds crossovers that are not there.
Quick runs have a plan of their own (quick.py).
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

from proxy.lab.calibration.deciding.estimates import Book
from proxy.lab.calibration.values import Arm, Cell, Condition, Ending, Measurement, Prefix, Span, Sweep
from proxy.lab.prompts import PromptKind
from proxy.routing.verdict import MIN_REPEATS, Contrast, Crossing, judge

DEFAULT_CONCURRENCIES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 250)

DEFAULT_BUDGET_S = 3600.0

# A cell that failed or was disturbed is measured once more; then something is wrong that a third time would not mend.
MAX_ATTEMPTS = 2

# Beyond this many repeats the interval shrinks by less than a tenth a repeat.
MAX_REPEATS = 8

# Repeats that only one arm has make no pair. After three of them at a concurrency it is that arm's doing.
_MAX_UNPAIRED = 3

# The error of a request to an engine that is not there: what that engine can bear, it does not tell.
_GONE = frozenset(("unreachable",))

# Two concurrencies closer than this are one for routing: no threshold is worth half of a tenth.
CLOSE_ENOUGH = 1.1

# What a cell takes besides its span before any was measured: prefill, first tokens, and running answers let go.
_OVERHEAD_S = 4.0

# Sweeps may plan with this share of the budget; the rest closes in on crossings and narrows intervals.
_SWEEP_SHARE = 0.55
_SIDE_SHARE = 0.2

# Where the shortest windows do not fit into that share, sweeps may take so much before concurrencies are left out.
_MOST_SWEEPS = 0.8

# Two ends and a middle.
_LEAST_GRID = 3

_WINDOW_S = (5.0, 60.0)
_SETTLE_S = (1.5, 20.0)
_SETTLE_SHARE = 0.25

# A mean this many half-widths away from zero keeps its sign whatever further repeats say.
_CLEAR = 3.0

# Half of an interval wider than this makes a poor curve, whatever it says of the sign.
_POOR = 0.05


@dataclass(frozen=True, slots=True)
class Aim:
    """What a calibration is to find out, and at what expense.

    `contexts` are buckets of context, tokens, the first the most usual; `prompts` classes of prompts, the first the
    main one; `precision` the half-width at which an interval of ln(ratio) is narrow enough; `budget_s` the time for
    all.
    """

    concurrencies: tuple[int, ...] = DEFAULT_CONCURRENCIES
    contexts: tuple[int, ...] = (1024,)
    arms: tuple[Arm, ...] = (Arm.SPECULATIVE, Arm.BASELINE)
    prompts: tuple[PromptKind, ...] = (PromptKind.MIXED, PromptKind.PROSE)
    budget_s: float = DEFAULT_BUDGET_S
    max_tokens: int = 256
    precision: float = 0.02
    quick: bool = False

    @property
    def contrasting(self) -> bool:
        """Whether both backends are measured, so that there is anything to compare."""
        return Arm.SPECULATIVE in self.arms and Arm.BASELINE in self.arms

    def main(self, context_tokens: int) -> Condition:
        """The condition that the verdict for one bucket of context is about."""
        return Condition(context_tokens, self.prompts[0], max_tokens=self.max_tokens)


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


def grid_of(aim: Aim) -> tuple[int, ...]:
    """The concurrencies of the sweeps: those asked for, thinned evenly where the budget does not hold them all."""
    asked = sorted(set(aim.concurrencies))
    room = max(_LEAST_GRID, int(len(asked) * aim.budget_s / least_budget_s(aim, len(asked)) + 1e-9))
    if len(asked) <= room:
        return tuple(asked)
    return tuple(sorted({asked[round(place * (len(asked) - 1) / (room - 1))] for place in range(room)}))


def least_budget_s(aim: Aim, count: int = 1) -> float:
    """The time that sweeps over `count` concurrencies take with the shortest windows, and some to close in."""
    cell_s = _WINDOW_S[0] + _SETTLE_S[0] + _OVERHEAD_S
    return cell_s * count * len(aim.contexts) * len(aim.arms) * MIN_REPEATS / _MOST_SWEEPS


def span_of(aim: Aim) -> Span:
    """How long each cell is measured, so that the sweeps fit into their share of the budget."""
    cells = len(grid_of(aim)) * len(aim.contexts) * len(aim.arms) * MIN_REPEATS
    each_s = _SWEEP_SHARE * aim.budget_s / cells - _OVERHEAD_S
    window_s = _within(each_s * (1.0 - _SETTLE_SHARE), _WINDOW_S)
    return Span(_within(window_s * _SETTLE_SHARE, _SETTLE_S), window_s)


class Past:
    """What is measured already: which cells are over, which are beyond an engine, what one costs."""

    def __init__(self, done: Sequence[Measurement]) -> None:
        self.done = done
        self._attempts = Counter(_key(one.cell) for one in done)
        self._usable = {_key(one.cell) for one in done if one.usable}
        self._queued = _first_queued(done)
        self._cut = _first_cut(done)

    def over(self, cell: Cell) -> bool:
        """Whether a cell is measured, or was given up after failing."""
        return _key(cell) in self._usable or self._attempts[_key(cell)] >= MAX_ATTEMPTS

    def fails(self, cell: Cell) -> bool:
        """Whether the engine failed under less, twice in one cell."""
        return cell.concurrency > self._cut.get((cell.condition, cell.arm), math.inf)

    def beyond(self, cell: Cell, top: int) -> bool:
        """Whether the engine cannot run so much: it failed under less, or queued (only the `top` is measured then)."""
        return self.fails(cell) or self._queued.get((cell.condition, cell.arm), math.inf) < cell.concurrency < top

    def cost_s(self, span: Span) -> float:
        """What the next cell will take: its span, and what cells took beyond theirs until now."""
        extra = [one.spent_s - one.window_s for one in self.done[-8:] if one.spent_s > 0.0]
        return span.window_s + (sum(extra) / len(extra) if extra else span.settle_s + _OVERHEAD_S)

    def book(self, condition: Condition) -> Book:
        """The usable measurements of a condition."""
        return Book(condition, self.done)


def _first_queued(done: Sequence[Measurement]) -> dict[tuple[Condition, Arm], int]:
    """Where each arm begins to queue: in most repeats, and nowhere above is it without a queue.

    One cell may look queued by a hiccup, and would else take all higher ones out of the plan.
    """
    votes: dict[tuple[Condition, Arm], Counter[int]] = {}
    for one in done:
        if one.usable:
            cells = votes.setdefault((one.cell.condition, one.cell.arm), Counter())
            cells[one.cell.concurrency] += 1 if one.queued else -1
    found = {}
    for where, cells in votes.items():
        free = max((at for at, vote in cells.items() if vote <= 0), default=0)
        queued = [at for at, vote in cells.items() if vote > 0 and at > free]
        if queued:
            found[where] = min(queued)
    return found


def _first_cut(done: Sequence[Measurement]) -> dict[tuple[Condition, Arm], int]:
    """The least under which each arm failed for good; one that was away failed of something else."""
    failures = Counter(_key(one.cell) for one in done if one.cut and not set(one.errors) <= _GONE)
    found: dict[tuple[Condition, Arm], int] = {}
    for (condition, concurrency, arm, _), count in failures.items():
        if count >= MAX_ATTEMPTS:
            found[condition, arm] = min(concurrency, found.get((condition, arm), concurrency))
    return found


def pair(
    aim: Aim, condition: Condition, concurrency: int, repeat: int, arms: Sequence[Arm] | None = None
) -> tuple[Cell, ...]:
    """One repeat of every arm at one concurrency: forwards in even repeats, backwards in odd ones."""
    order = tuple(arms or aim.arms)
    sweep = Sweep.DOWN if repeat % 2 else Sweep.UP
    return tuple(Cell(condition, concurrency, arm, repeat, sweep) for arm in (order[::-1] if repeat % 2 else order))


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


def _key(cell: Cell) -> tuple[Condition, int, Arm, int]:
    return (cell.condition, cell.concurrency, cell.arm, cell.repeat)


def _within(value: float, bounds: tuple[float, float]) -> float:
    return min(max(value, bounds[0]), bounds[1])

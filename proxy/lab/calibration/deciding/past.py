"""What is measured already: which cells are over, which are beyond an engine, and what one costs."""

import math
from collections import Counter
from collections.abc import Sequence

from proxy.lab.calibration.deciding.aim import OVERHEAD_S, Aim
from proxy.lab.calibration.deciding.estimates import Book
from proxy.lab.calibration.values import Arm, Cell, Condition, Measurement, Span, Sweep

# A cell that failed or was disturbed is measured once more; then something is wrong that a third time would not mend.
MAX_ATTEMPTS = 2

# The error of a request to an engine that is not there: what that engine can bear, it does not tell.
_GONE = frozenset(("unreachable",))


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
        return span.window_s + (sum(extra) / len(extra) if extra else span.settle_s + OVERHEAD_S)

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


def _key(cell: Cell) -> tuple[Condition, int, Arm, int]:
    return (cell.condition, cell.concurrency, cell.arm, cell.repeat)

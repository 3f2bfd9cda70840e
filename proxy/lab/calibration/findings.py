"""What measurements add up to: curves, contrasts and verdicts for each condition. Advice from them is in advice.py."""

import math
from collections.abc import Mapping, Sequence

from proxy.lab.calibration.estimates import Book
from proxy.lab.calibration.plan import Aim, side_conditions
from proxy.lab.calibration.quick import completed, predict
from proxy.lab.calibration.values import (
    Arm,
    ArmFacts,
    Condition,
    ContextFindings,
    Findings,
    Measurement,
    RunningRouting,
    Sweep,
)
from proxy.lab.calibration.words import counted
from proxy.routing.verdict import Contrast, judge

# Up and down sweeps that differ by more than this, in ln of speed, are told to the reader.
_HYSTERESIS = 0.03

# A client that used more of its core than this may have been what limited a cell.
_CLIENT_LIMIT = 0.8


def conclude(
    aim: Aim,
    facts: Mapping[Arm, ArmFacts],
    measurements: Sequence[Measurement],
    *,
    measured_at: str,
    spent_s: float,
    running: RunningRouting | None = None,
    complete: bool = True,
    notes: Sequence[str] = (),
) -> Findings:
    """The findings of a run, whole or cut. `measured_at` is the wall clock, ISO 8601."""
    main = [_condition(aim, aim.main(context), facts, measurements) for context in sorted(aim.contexts)]
    side = [_condition(aim, condition, facts, measurements) for condition in side_conditions(aim)]
    return Findings(
        measured_at=measured_at,
        spent_s=spent_s,
        facts=facts,
        main=tuple(one for one in main if any(one.curves.values())),
        side=tuple(one for one in side if any(one.curves.values())),
        running=running,
        quick=aim.quick,
        complete=complete,
        notes=(*notes, *_notes(measurements, main)),
        measurements=tuple(measurements),
    )


def _condition(
    aim: Aim, condition: Condition, facts: Mapping[Arm, ArmFacts], measurements: Sequence[Measurement]
) -> ContextFindings:
    book = Book(condition, measurements)
    curves = {arm: book.curve(arm) for arm in aim.arms}
    contrasts = book.contrasts(Arm.SPECULATIVE, Arm.BASELINE)
    if aim.quick and aim.contrasting:
        told = facts.get(Arm.SPECULATIVE)
        limit = told.max_running_requests if told is not None else None
        curves[Arm.SPECULATIVE], contrasts = completed(book, predict(book, facts, measurements), limit)
    return ContextFindings(
        condition=condition,
        curves=curves,
        contrasts=contrasts,
        verdict=judge(contrasts),
        against_best=_against_best(book, contrasts, quick=aim.quick) if Arm.ADAPTIVE in aim.arms else (),
        hysteresis=_hysteresis(condition, measurements),
    )


def _against_best(book: Book, contrasts: Sequence[Contrast], *, quick: bool) -> tuple[Contrast, ...]:
    """The adaptive arm with whichever of the other two is faster on average, at each concurrency."""
    best = {one.concurrency: Arm.SPECULATIVE if one.log_ratio > 0.0 else Arm.BASELINE for one in contrasts}
    found = []
    for arm in (Arm.SPECULATIVE, Arm.BASELINE):
        for one in book.contrasts(Arm.ADAPTIVE, arm, quick=quick):
            if best.get(one.concurrency) is arm:
                found.append(one)
    return tuple(sorted(found, key=lambda one: one.concurrency))


def _hysteresis(condition: Condition, measurements: Sequence[Measurement]) -> dict[Arm, float]:
    """For each arm the mean of ln(speed on the way up / on the way down), over concurrencies that have both."""
    speeds: dict[tuple[Arm, int], dict[Sweep, list[float]]] = {}
    for one in measurements:
        if one.cell.condition == condition and one.usable:
            ways = speeds.setdefault((one.cell.arm, one.cell.concurrency), {Sweep.UP: [], Sweep.DOWN: []})
            ways[one.cell.sweep].append(math.log(one.tok_s))
    gaps: dict[Arm, list[float]] = {}
    for (arm, _), ways in speeds.items():
        up, down = ways[Sweep.UP], ways[Sweep.DOWN]
        if up and down:
            gaps.setdefault(arm, []).append(sum(up) / len(up) - sum(down) / len(down))
    return {arm: sum(values) / len(values) for arm, values in gaps.items()}


def _left_out(cells: int) -> str:
    return f"{counted(cells, 'cell')} {'is' if cells == 1 else 'are'} left out"


def _without_decoding(condition: Condition, measurements: Sequence[Measurement]) -> Arm | None:
    """The arm for whose sake speeds while decoding are not used, where others tell theirs."""
    told: dict[Arm, bool] = {}
    for arm in Arm:
        cells = [one for one in measurements if one.cell.arm is arm]
        if any(one.usable and one.cell.condition == condition for one in cells):
            told[arm] = Book(condition, cells).by_decoding
    return next((arm for arm, known in told.items() if not known), None) if any(told.values()) else None


def _notes(measurements: Sequence[Measurement], main: Sequence[ContextFindings]) -> list[str]:
    """What a reader must know before believing the figures."""
    notes = []
    cut = [one for one in measurements if one.cut]
    if cut:
        names = sorted({name for one in cut for name in one.errors})
        notes.append(f"{_left_out(len(cut))} because requests failed in them ({', '.join(names)})")
    disturbed = sum(one.disturbed for one in measurements)
    if disturbed:
        notes.append(f"{_left_out(disturbed)} because other traffic ran on the engine: measure while nothing else does")
    for found in main:
        silent = _without_decoding(found.condition, measurements)
        if silent:
            notes.append(
                f"at {found.condition.context_tokens} tokens of context the arms are compared by what clients got, as"
                f" {silent} tells no speed while decoding in most cells"
            )
    limited = sorted({one.cell.concurrency for one in measurements if one.client_cpu > _CLIENT_LIMIT})
    if limited:
        levels = ", ".join(map(str, limited))
        notes.append(f"this program itself used most of a core at concurrency {levels}: the engines may be faster")
    for found in main:
        for arm, gap in found.hysteresis.items():
            if abs(gap) > _HYSTERESIS:
                way = "faster" if gap > 0 else "slower"
                notes.append(
                    f"{arm} was {abs(gap):.0%} {way} while concurrency rose than while it fell, at "
                    f"{found.condition.context_tokens} tokens of context: a clock or a cache had not settled"
                )
    return notes

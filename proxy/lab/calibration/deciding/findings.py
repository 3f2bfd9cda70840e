"""What measurements add up to: curves, contrasts and verdicts for each condition. Advice from them is in advice.py."""

import math
from collections.abc import Mapping, Sequence

from proxy.lab.calibration.deciding.aim import Aim, grid_of, least_budget_s
from proxy.lab.calibration.deciding.estimates import Book
from proxy.lab.calibration.deciding.plan import Stage, left_at, side_conditions
from proxy.lab.calibration.deciding.quick import completed, left_at_quick, predict
from proxy.lab.calibration.values import (
    Arm,
    ArmFacts,
    Condition,
    ContextFindings,
    Findings,
    Measurement,
    Prefill,
    RunningRouting,
    Sweep,
)
from proxy.lab.calibration.words import counted, listed
from proxy.routing.verdict import MIN_REPEATS, Contrast, judge

# Up and down sweeps that differ by more than this, in ln of speed, are told to the reader.
_HYSTERESIS = 0.03

# What the budget did not hold, and what would mend it. Without its sweeps a plan is not carried out.
_SWEEPS = (Stage.PROBE, Stage.SWEEP)
_SHORT = {
    Stage.PROBE: "the time ended before the first look at both arms: give a larger --budget, or fewer --context",
    Stage.SWEEP: (
        "the time ended before every concurrency was measured: give a larger --budget, or fewer --concurrency or "
        "--context"
    ),
    Stage.CLOSE_IN: "the time ended while the crossover was being closed in on: a larger --budget makes it narrower",
    Stage.VERIFY: "the time ended before all was measured that the verdict hangs on: a full run, or a larger --budget",
    Stage.SIDE: "the time ended before other prompts, a cold cache and natural endings: give a larger --budget",
    Stage.REPEAT: "the time ended before every interval was as narrow as --precision asks: give a larger --budget",
}

# A client that used more of its core than this may have been what limited a cell.
_CLIENT_LIMIT = 0.8


def conclude(
    aim: Aim,
    facts: Mapping[Arm, ArmFacts],
    measurements: Sequence[Measurement],
    *,
    measured_at: str,
    spent_s: float,
    prefills: Sequence[Prefill] = (),
    running: RunningRouting | None = None,
    complete: bool = True,
    notes: Sequence[str] = (),
) -> Findings:
    """The findings of a run, whole or cut. `measured_at` is the wall clock, ISO 8601; `complete`: nobody stopped it.

    What a run that nobody stopped had no time for is told by a note.
    """
    left = left_at_quick(aim, facts, measurements) if aim.quick else left_at(aim, measurements)
    short = [_SHORT[left]] if complete and left is not None else []
    main = [_condition(aim, aim.main(context), facts, measurements) for context in aim.contexts]
    side = [_condition(aim, condition, facts, measurements) for condition in side_conditions(aim)]
    return Findings(
        measured_at=measured_at,
        spent_s=spent_s,
        facts=facts,
        main=tuple(one for one in main if any(one.curves.values())),
        side=tuple(one for one in side if any(one.curves.values())),
        running=running,
        quick=aim.quick,
        complete=complete and left not in _SWEEPS,
        notes=(
            *notes,
            *short,
            *_thinned(aim),
            *_notes(measurements, main),
            *(_untold(aim, prefills) if complete else ()),
        ),
        measurements=tuple(measurements),
        prefills=tuple(prefills),
    )


def _untold(aim: Aim, prefills: Sequence[Prefill]) -> list[str]:
    """Of whom it is not known how fast prompts are taken in."""
    known = {(one.arm, one.context_tokens) for one in prefills}
    arms = [arm for arm in aim.arms if arm is not Arm.ADAPTIVE]
    silent = [arm for arm in arms if any((arm, context) not in known for context in aim.contexts)]
    if not silent:
        return []
    return [
        f"prefill of {listed(silent)} could not be measured: no first token was seen, or longer prompts took no "
        "longer; policy marginal then places requests without it"
    ]


def _thinned(aim: Aim) -> list[str]:
    """Which concurrencies the budget did not hold, and what would hold them all."""
    asked, swept = sorted(set(aim.concurrencies)), grid_of(aim)
    if aim.quick or len(swept) == len(asked):
        return []
    minutes = math.ceil(least_budget_s(aim, len(asked)) / 60.0)
    return [
        f"the budget held {len(swept)} of the {len(asked)} concurrencies asked for ({listed(swept)}); all of them take "
        f"--budget {minutes}m"
    ]


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
        hysteresis=_hysteresis(aim, condition, measurements),
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


def _hysteresis(aim: Aim, condition: Condition, measurements: Sequence[Measurement]) -> dict[Arm, float]:
    """For each arm the mean of ln(speed on the way up / on the way down), over concurrencies that have both.

    Sweeps alone: before a cell that closes in or repeats the load was anything.
    """
    speeds: dict[tuple[Arm, int], dict[Sweep, list[float]]] = {}
    grid = grid_of(aim)
    for one in measurements:
        swept = one.cell.concurrency in grid and one.cell.repeat < MIN_REPEATS
        if one.cell.condition == condition and one.usable and swept:
            ways = speeds.setdefault((one.cell.arm, one.cell.concurrency), {Sweep.UP: [], Sweep.DOWN: []})
            ways[one.cell.sweep].append(math.log(one.tok_s))
    gaps: dict[Arm, list[float]] = {}
    for (arm, _), ways in speeds.items():
        up, down = ways[Sweep.UP], ways[Sweep.DOWN]
        if up and down:
            gaps.setdefault(arm, []).append(sum(up) / len(up) - sum(down) / len(down))
    return {arm: sum(values) / len(values) for arm, values in gaps.items()}


def _silent(condition: Condition, measurements: Sequence[Measurement]) -> list[Arm]:
    """The arms for whose sake speeds are what clients got: their engines do not tell how fast they decode."""
    own = {arm: [one for one in measurements if one.cell.arm is arm] for arm in Arm}
    measured = [arm for arm in Arm if any(one.usable and one.cell.condition == condition for one in own[arm])]
    return [arm for arm in measured if Book(condition, own[arm]).gross]


def _notes(measurements: Sequence[Measurement], main: Sequence[ContextFindings]) -> list[str]:
    """What a reader must know before believing the figures."""
    notes = []
    cut = [one for one in measurements if one.cut]
    if cut:
        names = sorted({name for one in cut for name in one.errors})
        notes.append(f"left out: {counted(len(cut), 'cell')} in which requests failed ({', '.join(names)})")
    disturbed = sum(one.disturbed for one in measurements)
    if disturbed:
        notes.append(
            f"left out: {counted(disturbed, 'cell')} in which other traffic ran on the engine; measure while none does"
        )
    for found in main:
        silent = _silent(found.condition, measurements)
        if silent:
            notes.append(
                f"at {found.condition.context_tokens} tokens of context all speeds are what clients got, prefill of "
                f"other requests included: {listed(silent)} told no speed while decoding in most cells"
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

"""The tables of a report, as text in rows: the page and the Markdown draw the same ones. Drawing is not here."""

from collections.abc import Iterator, Mapping, Sequence
from math import exp, isfinite
from typing import NamedTuple

from proxy.lab.calibration.advice import choices
from proxy.lab.calibration.advice.choices import Choice, Way
from proxy.lab.calibration.values import (
    Arm,
    ArmFacts,
    Condition,
    ContextFindings,
    Estimate,
    Findings,
    Measurement,
    Prefill,
    Quantiles,
)
from proxy.lab.calibration.words import UNKNOWN, counted, figures, listed, speed
from proxy.model import Placement
from proxy.routing.verdict import Contrast

# A symbol with its word, so that neither colour nor the legend is needed to read a row.
PREDICTED, QUEUED, CUT, DISTURBED = "~ predicted", "= queued", "x cut", "! disturbed"

# More rows than anybody reads in a page, and some 200 kB of it; all of them are in the folder's measurements.jsonl.
MAX_CELLS = 800

Row = tuple[str, ...]


class Table(NamedTuple):
    """Rows under a head; the first column names the row."""

    head: Row
    rows: tuple[Row, ...]


def condition_name(condition: Condition) -> str:
    """A condition in words: `1024 tokens of context, mixed prompts, warm cache, fixed length of 256`."""
    return (
        f"{condition.context_tokens} tokens of context, {condition.prompts} prompts, {condition.prefix} cache, "
        f"{condition.ending} length of {condition.max_tokens}"
    )


def curve_table(context: ContextFindings) -> Table:
    """One row for each concurrency: the speed of each arm with its interval, and the ratio."""
    arms = [arm for arm in Arm if context.curves.get(arm)]
    points = {arm: {point.concurrency: point for point in context.curves[arm]} for arm in arms}
    ratios = {contrast.concurrency: contrast for contrast in context.contrasts}
    numbers = sorted({*ratios, *(n for found in points.values() for n in found)})
    head = ("in flight", *(f"{arm}, tok/s" for arm in arms), "speculative / baseline", "repeats", "marks")
    return Table(
        head, tuple(_curve_row(n, [points[arm].get(round(n)) for arm in arms], ratios.get(n)) for n in numbers)
    )


def prefill_table(findings: Findings) -> Table:
    """One row for each bucket: how fast each backend takes prompts in."""
    arms = [arm for arm in Arm if any(one.arm is arm for one in findings.prefills)]
    found = {(one.context_tokens, one.arm): one for one in findings.prefills}
    head = ("context", *(f"{arm}, prompt tok/s" for arm in arms))
    buckets = sorted({one.context_tokens for one in findings.prefills})
    return Table(head, tuple((str(at), *(_taken_in(found.get((at, arm))) for arm in arms)) for at in buckets))


def cell_table(measurements: Sequence[Measurement], condition: Condition) -> Table:
    """Every cell of one condition, in the order of arm and concurrency; at most MAX_CELLS."""
    head = (
        "arm",
        "in flight",
        "repeat",
        "tok/s",
        "clients got",
        "batch",
        "tokens a step",
        "TTFT p50, s",
        "p99",
        "TPOT p50, ms",
        "p99",
        "a request, tok/s p10",
        "KV use",
        "counted by",
        "own CPU",
        "marks",
    )
    order = list(Arm)
    cells = sorted(
        (one for one in measurements if one.cell.condition == condition),
        key=lambda one: (order.index(one.cell.arm), one.cell.concurrency, one.cell.repeat),
    )
    return Table(head, tuple(_cell_row(one) for one in cells[:MAX_CELLS]))


def choice_table(context: ContextFindings, placement: Placement) -> Table:
    """What each way chooses and gives: total tok/s, and that of a request, at each number in flight."""
    totals = choices.totals_of(context, placement)
    rows = choices.at(context, totals, placement)
    ways = [way for way in Way if any(row.way is way for row in rows)]
    found = {(row.total, row.way): row for row in rows}
    head = ("in flight", *(str(way) for way in ways))
    return Table(head, tuple((str(n), *(_chosen(found.get((n, way))) for way in ways)) for n in totals))


def fact_table(facts: Mapping[Arm, ArmFacts]) -> Table:
    """What the engines said of themselves, and their flags: one column for each arm, `differs` where they do."""
    arms = [arm for arm in Arm if arm in facts]
    told = {arm: _facts_of(facts[arm]) for arm in arms}
    names = list(dict.fromkeys(name for arm in arms for name in told[arm]))
    rows = []
    for name in names:
        values = tuple(told[arm].get(name, UNKNOWN) for arm in arms)
        if any(value != UNKNOWN for value in values):
            differs = len(set(values)) > 1 and name != "url"
            rows.append((name, *values, "differs" if differs else ""))
    return Table(("", *arms, ""), tuple(rows))


def marks_of(one: Measurement) -> Iterator[str]:
    """What is to be known of a cell besides its numbers."""
    if one.queued:
        yield QUEUED
    if one.disturbed:
        yield DISTURBED
    if one.cut:
        errors = listed(f"{count} {name}" for name, count in sorted(one.errors.items()))
        yield f"{CUT}: {errors}"


def how_measured(findings: Findings) -> Iterator[str]:
    """Sentences on what was done, from the cells themselves."""
    cells = findings.measurements
    if not cells:
        return
    windows = sorted(one.window_s for one in cells)
    sources = sorted({one.source.value for one in cells})
    requests, tokens = sum(one.requests for one in cells), sum(one.tokens for one in cells)
    count = counted(len(cells), "cell")
    ends = list(dict.fromkeys(f"{window:.3g}" for window in (windows[0], windows[-1])))
    yield (
        f"{count} of {' to '.join(ends)} s each, with {requests:,} requests and {tokens:,.0f} tokens "
        f"in their windows; tokens counted by {listed(sources)}."
    )
    unusable = [one for one in cells if not one.usable]
    if unusable:
        yield f"{counted(len(unusable), 'cell')} spoke for nothing: requests failed, or somebody else used the engine."
    for context in findings.main:
        worst = max(context.hysteresis.items(), key=lambda item: abs(item[1]), default=None)
        if worst is not None:
            yield (
                f"At {context.condition.context_tokens} tokens, rising load differed from falling by at most "
                f"{100 * abs(exp(max(-1.0, min(worst[1], 1.0))) - 1):.1f} % ({worst[0]})."
            )


def _curve_row(n: float, points: Sequence[Estimate | None], ratio: Contrast | None) -> Row:
    repeats = [point.repeats for point in points if point is not None and not point.predicted]
    return (
        f"{n:g}",
        *(_with_interval(point) for point in points),
        _ratio(ratio),
        str(min(repeats)) if repeats else UNKNOWN,
        ", ".join(_marks_of_points(points)),
    )


def _taken_in(one: Prefill | None) -> str:
    if one is None:
        return UNKNOWN
    if one.low is None or one.high is None:
        return f"{one.tok_s:.0f}"
    return f"{one.tok_s:.0f} ({one.low:.0f} to {one.high:.0f})"


def _marks_of_points(points: Sequence[Estimate | None]) -> Iterator[str]:
    known = [point for point in points if point is not None]
    if any(point.predicted for point in known):
        yield PREDICTED
    if any(point.queued for point in known):
        yield QUEUED


def _with_interval(point: Estimate | None) -> str:
    if point is None:
        return UNKNOWN
    told = f"~{speed(point.tok_s)}" if point.predicted else speed(point.tok_s)
    return told if point.low is None or point.high is None else f"{told} ({speed(point.low)} to {speed(point.high)})"


def _ratio(contrast: Contrast | None) -> str:
    if contrast is None:
        return UNKNOWN
    mean, low, high = (exp(max(-50.0, min(value, 50.0))) for value in (contrast.log_ratio, contrast.low, contrast.high))
    if not isfinite(contrast.high - contrast.low):
        return figures(mean)
    return f"{figures(mean)} ({figures(low)} to {figures(high)})"


def _cell_row(one: Measurement) -> Row:
    return (
        one.cell.arm.value,
        str(one.cell.concurrency),
        f"{one.cell.repeat + 1} {one.cell.sweep}",
        speed(one.tok_s),
        speed(one.gross_tok_s),
        _number(one.batch, ".1f"),
        _number(one.tokens_per_step, ".2f"),
        *_typical_and_worst(one.ttft_s, 1.0),
        *_typical_and_worst(one.tpot_s, 1000.0),
        speed(one.request_tok_s.p10) if one.request_tok_s is not None else UNKNOWN,
        _number(one.kv_use, ".0%"),
        one.source.value,
        f"{one.client_cpu:.0%}",
        ", ".join(marks_of(one)),
    )


def _typical_and_worst(values: Quantiles | None, scale: float) -> Row:
    if values is None:
        return UNKNOWN, UNKNOWN
    return figures(values.p50 * scale), figures(values.p99 * scale)


def _number(value: float | None, form: str) -> str:
    return UNKNOWN if value is None else format(value, form)


def _chosen(row: Choice | None) -> str:
    if row is None:
        return UNKNOWN
    spread = f" [{row.speculative}+{row.baseline}]" if row.way in (Way.OVERFLOW, Way.MARGINAL) else ""
    return f"{'~' if row.extrapolated else ''}{speed(row.tok_s)}, {speed(row.request_tok_s)} each{spread}"


def _facts_of(facts: ArmFacts) -> dict[str, str]:
    drafts = (facts.num_steps, facts.topk, facts.draft_tokens)
    told: dict[str, object | None] = {
        "url": facts.url,
        "engine": facts.engine,
        "version": facts.version,
        "model": facts.model,
        "accelerators": _accelerators(facts),
        "max running requests": facts.max_running_requests,
        "KV cache, tokens": facts.kv_tokens,
        "speculation": facts.speculative_algorithm,
        "steps/topk/draft tokens": "/".join(str(part) if part is not None else "?" for part in drafts)
        if any(part is not None for part in drafts)
        else None,
        "adaptive": "yes" if facts.adaptive else None,
        **{f"--{name.replace('_', '-')}": value for name, value in sorted(facts.flags.items())},
    }
    return {name: UNKNOWN if value is None else str(value) for name, value in told.items()}


def _accelerators(facts: ArmFacts) -> str | None:
    if facts.accelerator is None or facts.accelerators is None:
        return facts.accelerator or (None if facts.accelerators is None else str(facts.accelerators))
    told = facts.accelerator.removeprefix(f"{facts.accelerators}x").strip()
    return f"{facts.accelerators} x {told}"

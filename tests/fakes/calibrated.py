"""Findings of calibrations that never ran: built from tables of speeds or from a shipped curve, the same every time."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import exp, log

from proxy.lab.calibration.values import (
    Arm,
    ArmFacts,
    Cell,
    Condition,
    ContextFindings,
    Estimate,
    Findings,
    Measurement,
    Quantiles,
    RunningRouting,
    Source,
    Sweep,
)
from proxy.lab.curves import find
from proxy.model import Placement, Role
from proxy.routing.verdict import Contrast, judge

Table = Mapping[int, float]

REPEATS = 6
MEASURED_AT = "2026-11-30T04:12:00Z"


def estimates(table: Table, spread: float | None = 0.012, repeats: int = REPEATS) -> tuple[Estimate, ...]:
    """A curve with intervals of `spread` (ln) to either side; None: no intervals, as where too few repeats were."""
    if spread is None:
        return tuple(Estimate(n, speed, repeats=1) for n, speed in sorted(table.items()))
    low, high = exp(-spread), exp(spread)
    return tuple(Estimate(n, speed, speed * low, speed * high, repeats) for n, speed in sorted(table.items()))


def contrasts(ours: Table, theirs: Table, spread: float | None = 0.017) -> tuple[Contrast, ...]:
    """Paired contrasts where both were measured."""
    means = {n: log(ours[n] / theirs[n]) for n in sorted(ours.keys() & theirs.keys())}
    if spread is None:
        return tuple(Contrast(n, mean, float("-inf"), float("inf")) for n, mean in means.items())
    return tuple(Contrast(n, mean, mean - spread, mean + spread, REPEATS) for n, mean in means.items())


def context(
    speculative: Table,
    baseline: Table,
    adaptive: Table | None = None,
    *,
    tokens: int = 1024,
    spread: float | None = 0.015,
) -> ContextFindings:
    """One context bucket; an empty table is an arm that was not measured."""
    tables = {Arm.SPECULATIVE: speculative, Arm.BASELINE: baseline, Arm.ADAPTIVE: adaptive or {}}
    compared = contrasts(speculative, baseline, spread)
    better = {n: max(speculative[n], baseline[n]) for n in speculative.keys() & baseline.keys()}
    return ContextFindings(
        Condition(tokens),
        {arm: estimates(table, spread) for arm, table in tables.items() if table},
        compared,
        judge(compared),
        contrasts(adaptive or {}, better, spread),
        {arm: 0.004 for arm, table in tables.items() if table},
    )


def of_curve(name: str, *, tokens: int | None = None) -> ContextFindings:
    """A context measured exactly as a shipped curve says."""
    curve = find(name)
    tables = ({round(point.concurrency): point.of(role) for point in curve.points} for role in Role)
    return context(*tables, tokens=tokens if tokens is not None else max(curve.context_tokens, 1024))


def facts(arm: Arm, **changes: object) -> ArmFacts:
    """What an engine would say of itself; the speculative one drafts a chain 3/1/4."""
    told = ArmFacts(
        arm,
        f"http://127.0.0.1:{30001 + list(Arm).index(arm)}",
        "sglang",
        model="example/model-8b",
        version="0.5.23",
        max_running_requests=512,
        accelerator="RTX PRO 6000",
        accelerators=8,
        flags={"tp_size": "8", "attention_backend": "flashinfer", "chunked_prefill_size": "8192"},
    )
    if arm is not Arm.BASELINE:
        told = replace(told, speculative_algorithm="EAGLE3", num_steps=3, topk=1, draft_tokens=4)
    return replace(told, adaptive=arm is Arm.ADAPTIVE, **changes)  # type: ignore[arg-type]


def running(placement: Placement = Placement.SEPARATE, **changes: object) -> RunningRouting:
    """What the shipped configuration asks for."""
    return replace(RunningRouting("auto", 9, 5, Role.BASELINE, placement), **changes)  # type: ignore[arg-type]


def measurement(cell: Cell, tok_s: float, **changes: object) -> Measurement:
    """One cell that went well, with all that an engine can tell."""
    each = tok_s / cell.concurrency
    speculates = cell.arm is not Arm.BASELINE
    plain = Measurement(
        cell,
        MEASURED_AT,
        20.0,
        requests=4 * cell.concurrency,
        tokens=tok_s * 20.0,
        source=Source.MOMENTS,
        gross_tok_s=tok_s * 0.97,
        decode_tok_s=tok_s,
        batch=float(cell.concurrency),
        tokens_per_step=2.2 if speculates else 1.0,
        accept_length=2.2 if speculates else None,
        kv_use=min(0.9, 0.002 * cell.concurrency),
        ttft_s=_around(0.05 + 0.004 * cell.concurrency),
        tpot_s=_around(1 / each),
        request_tok_s=_around(each),
        client_cpu=0.05,
        spent_s=26.0,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def measured(contexts: Sequence[ContextFindings], repeats: int = 2) -> tuple[Measurement, ...]:
    """The cells behind some contexts, each `repeats` times, up and down by turns and a little apart."""
    found = []
    for each in contexts:
        for arm, points in each.curves.items():
            for point in points:
                for repeat in range(repeats):
                    cell = Cell(each.condition, point.concurrency, arm, repeat, list(Sweep)[repeat % 2])
                    found.append(measurement(cell, point.tok_s * (1.005 - 0.01 * (repeat % 2))))
    return tuple(found)


def findings(*main: ContextFindings, placement: Placement = Placement.SEPARATE, **changes: object) -> Findings:
    """A calibration of some contexts on backends with or without GPUs of their own."""
    arms = dict.fromkeys(arm for each in main for arm in each.curves)
    plain = Findings(
        MEASURED_AT,
        9000.0,
        {arm: facts(arm) for arm in arms},
        main,
        (),
        running(placement),
        measurements=measured(main),
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def seed_box(**changes: object) -> Findings:
    """The box this began from: a tree 2/4/16 at most 48 at once, slower at every concurrency, on GPUs of its own."""
    told = {
        Arm.SPECULATIVE: facts(Arm.SPECULATIVE, num_steps=2, topk=4, draft_tokens=16, max_running_requests=48),
        Arm.BASELINE: facts(Arm.BASELINE, max_running_requests=4096),
    }
    plain = findings(of_curve("seed"), facts=told)
    queued = tuple(
        replace(one, queued=one.cell.arm is Arm.SPECULATIVE and one.cell.concurrency > 48) for one in plain.measurements
    )
    (plain_context,) = plain.main
    speculative = tuple(replace_queued(point) for point in plain_context.curves[Arm.SPECULATIVE])
    curves = {**plain_context.curves, Arm.SPECULATIVE: speculative}
    compared = tuple(one._replace(queued=one.concurrency > 48) for one in plain_context.contrasts)
    main = (replace(plain_context, curves=curves, contrasts=compared),)
    return replace(plain, **{"main": main, "measurements": queued, **changes})  # type: ignore[arg-type]


def replace_queued(point: Estimate) -> Estimate:
    """The point as an engine gives it that runs at most 48 sequences."""
    return point._replace(queued=point.concurrency > 48)


def _around(value: float) -> Quantiles:
    return Quantiles(value, 0.8 * value, 0.98 * value, 1.3 * value, 1.8 * value)

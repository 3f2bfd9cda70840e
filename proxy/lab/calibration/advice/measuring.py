"""What the measurement itself calls for: arms made equal, limits raised, less noise. Which GPUs to use for what is in
advice_gpus.py."""

from collections.abc import Iterator
from math import isfinite
from statistics import median

from proxy.lab.calibration.advice.choices import ARM_OF
from proxy.lab.calibration.advice.kinds import Advice, AdviceKind
from proxy.lab.calibration.advice.proposal import pays
from proxy.lab.calibration.values import Arm, ArmFacts, ContextFindings, Findings
from proxy.lab.calibration.words import counted, listed, percent
from proxy.routing.verdict import Contrast

# What follows from the memory that a drafter takes, or is told beside the flags already.
FOLLOWING = frozenset({"max_running_requests", "max_total_tokens", "max_total_num_tokens"})
# The limit that SGLang sets by itself when speculation is on; at or below it nobody has chosen one.
SILENT_LIMIT = 48
# How engines other than SGLang call the limit on their command line.
LIMIT_OPTIONS = {"vllm": "--max-num-seqs", "llamacpp": "--parallel"}
# Share of one core from which the measuring program may have been what was measured.
BUSY_CLIENT = 0.8
# Half-width (ln) of a typical contrast above which differences that matter are lost; six repeats give 0.01 to 0.03.
WIDE = 0.05
# Share of cells beyond which somebody else's traffic is more than an accident.
OFTEN_DISTURBED = 0.1


def unequal_arms(findings: Findings) -> Iterator[Advice]:
    """Arms that differ in what should be the same."""
    one, other = (findings.facts.get(arm) for arm in ARM_OF.values())
    if one is None or other is None:
        return
    odd = list(_differences(one, other))
    if odd:
        yield Advice(
            AdviceKind.UNEQUAL_ARMS,
            f"The two servers differ in more than speculation: {'; '.join(odd)} (speculative against baseline). Make "
            "them equal and calibrate again, or take the verdict as one on these two servers and not on speculation.",
            {"differences": float(len(odd))},
        )


def _differences(speculative: ArmFacts, baseline: ArmFacts) -> Iterator[str]:
    for name in ("engine", "model", "version", "max_running_requests", "accelerator", "accelerators"):
        ours, theirs = getattr(speculative, name), getattr(baseline, name)
        if ours is not None and theirs is not None and ours != theirs:
            yield f"{name} {ours} against {theirs}"
    for name in sorted(speculative.flags.keys() & baseline.flags.keys()):
        if not name.startswith("speculative") and name not in FOLLOWING:
            ours, theirs = speculative.flags[name], baseline.flags[name]
            if ours != theirs:
                yield f"{name} {ours} against {theirs}"


def client_limit(findings: Findings) -> Iterator[Advice]:
    """Cells in which the measuring program may have been the limit."""
    busy = [one for one in findings.measurements if one.client_cpu > BUSY_CLIENT]
    if busy:
        most = max(one.client_cpu for one in busy)
        least_n = min(one.cell.concurrency for one in busy)
        yield Advice(
            AdviceKind.CLIENT_LIMIT,
            f"In {counted(len(busy), 'cell')}, from {least_n} in flight on, this program used up to {percent(most)} of "
            "a core, so it may itself have been the limit: calibrate from a faster machine, or up to fewer in flight.",
            {"cells": float(len(busy)), "most": most, "from": float(least_n)},
        )


def noisy(findings: Findings) -> Iterator[Advice]:
    """Intervals too wide for the differences that matter, or other traffic in many cells."""
    widths = [_half_width(one) for context in findings.main for one in context.contrasts if not one.predicted]
    known = [width for width in widths if isfinite(width)]
    disturbed = sum(one.disturbed for one in findings.measurements)
    said = []
    # A quick run's intervals are assumed, and the page says so.
    if known and median(known) > WIDE and not findings.quick:
        said.append(f"a typical difference is known only to ±{percent(median(known))}")
    if findings.measurements and disturbed > OFTEN_DISTURBED * len(findings.measurements):
        said.append(f"other traffic disturbed {disturbed} of {counted(len(findings.measurements), 'cell')}")
    if said:
        yield Advice(
            AdviceKind.NOISY,
            f"The measurement is noisy: {listed(said)}. Measure while nobody else uses the engines, with more repeats "
            "or longer windows.",
            {"half_width": median(known) if known else 0.0, "disturbed": float(disturbed)},
        )


def _half_width(contrast: Contrast) -> float:
    return (contrast.high - contrast.low) / 2


def raise_max_running(findings: Findings) -> Iterator[Advice]:
    """An engine that ran fewer sequences than were asked of it, or would have: the first such arm."""
    for arm in ARM_OF.values():
        limit = findings.facts[arm].max_running_requests if arm in findings.facts else None
        cells = [one for one in findings.measurements if one.cell.arm is arm]
        queued = sum(one.queued and one.usable for one in cells)
        tested = max((one.cell.concurrency for one in cells), default=0)
        tested = max([tested, *(p.concurrency for c in findings.main for p in c.curves.get(arm, ()))])
        if not queued and (limit is None or limit >= tested):
            continue
        why = f"runs at most {limit} sequences" if limit is not None else "ran fewer sequences than were asked of it"
        silent = f"; {SILENT_LIMIT} is what SGLang sets by itself with speculation" if limit == SILENT_LIMIT else ""
        waits = f", and requests waited in {counted(queued, 'cell')}" if queued else ""
        yield Advice(
            AdviceKind.RAISE_MAX_RUNNING,
            f"The {arm} engine {why}{waits}{silent}. Start it with {_option(findings, arm)} {max(tested, 256)}, or "
            "what its memory allows, and calibrate again: above its limit the queue was measured and not the engine.",
            {"limit": float(limit or 0), "queued_cells": float(queued), "tested": float(tested)},
        )
        return


def _option(findings: Findings, arm: Arm) -> str:
    return LIMIT_OPTIONS.get(findings.facts[arm].engine if arm in findings.facts else "", "--max-running-requests")


def context_moves(findings: Findings) -> Iterator[Advice]:
    """Contexts that give different answers."""
    if len({_outcome(context) for context in findings.main}) > 1:
        told = listed(f"{pays(one.verdict)} at {one.condition.context_tokens}" for one in findings.main)
        yield Advice(
            AdviceKind.CONTEXT_MOVES,
            f"Where speculation pays depends on the context: {told} tokens. One number for all is a compromise; a rule "
            "long_prompt can send long ones to where they fare better.",
            {"contexts": float(len(findings.main))},
        )


def _outcome(context: ContextFindings) -> tuple[object, ...]:
    """What counts as the same answer: the kind, and a first crossing within the same doubling of measured cells."""
    first = context.verdict.crossings[:1]
    return context.verdict.kind, *((one.low, one.high, one.faster_above) for one in first)

"""`curves.yaml`: the measured speeds and verdicts in the form that `routing.curves_file` reads. Reading is config's."""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from math import exp, isfinite

from proxy import __version__
from proxy.lab.calibration.advice.choices import ARM_OF, speed_curve, speeds_of
from proxy.lab.calibration.advice.proposal import placement_of
from proxy.lab.calibration.values import Arm, ContextFindings, Findings
from proxy.lab.calibration.words import counted, listed
from proxy.model import Placement, Role
from proxy.routing.curves import SpeedCurve
from proxy.routing.verdict import Contrast

# Figures of a number: speeds are known to two or three, and more would only make diffs of two calibrations longer.
FIGURES = 6
# Ratios are kept from one millionth to a million: beyond is no measurement, and the reader refuses it.
MAX_LOG = 13.8


def text(findings: Findings) -> str | None:
    """The whole file; None where no speed was measured, since a file without curves is refused.

    Contexts of which one backend lacks are left out where any has both: policies cannot place by half of a pair.
    """
    rising = sorted(findings.main, key=lambda context: context.condition.context_tokens)
    whole = [context for context in rising if speeds_of(context, Placement.SEPARATE).whole]
    contexts = [line for context in whole or rising for line in _context(context)]
    if not contexts:
        return None
    return "\n".join((*_header(findings), "contexts:", *contexts)) + "\n"


def number(value: float) -> str:
    """A number as YAML takes it for one: never with a bare exponent, which would be text."""
    return f"{Decimal(f'{value:.{FIGURES}g}'):f}"


def quoted(words: str | None) -> str:
    """Foreign text as one scalar that the configuration's reader takes: what cannot be printed becomes `?`, and `${`
    stays text, so that no name of a model is filled from the environment of the proxy."""
    if words is None:
        return "null"
    printable = "".join(char if char.isprintable() else "?" for char in words)
    escaped = printable.replace("\\", "\\\\").replace('"', '\\"').replace("${", "$${")
    return f'"{escaped}"'


def _header(findings: Findings) -> Iterator[str]:
    arms = [arm for arm in Arm if any(arm in context.curves for context in findings.main)]
    yield f"# Written by crossover calibrate {__version__}: measured speeds of {listed(arms)}, output tok/s of each."
    cells = counted(len(findings.measurements), "cell")
    how = "in a quick run, partly predicted" if findings.quick else "in one calibration"
    yield f"# From {cells} {how}{'' if findings.complete else ', which was not carried out to its end'}."
    yield "# routing.curves_file names this file. Calibrate again after a change of model, engine or flags."
    yield "version: 1"
    yield f"measured_at: {quoted(findings.measured_at)}"
    yield f"placement: {placement_of(findings).value}"
    models = (findings.facts[arm].model for arm in Arm if arm in findings.facts)
    yield f"model: {quoted(next((model for model in models if model), None))}"
    versions = (
        f"{role}: {quoted(findings.facts[arm].version if arm in findings.facts else None)}"
        for role, arm in ARM_OF.items()
    )
    yield f"engines: {{{', '.join(versions)}}}"


def _context(context: ContextFindings) -> Iterator[str]:
    curves = {role: speed_curve(context.curves.get(arm, ())) for role, arm in ARM_OF.items()}
    if not any(curves.values()):
        return
    verdict = context.verdict
    yield f"  - context_tokens: {context.condition.context_tokens}"
    yield f"    verdict: {verdict.kind.value}"
    yield f"    reason: {quoted(verdict.reason)}"
    yield from _list(
        "crossings",
        [
            f"at: {number(one.at)}, low: {number(one.low)}, high: {number(one.high)}, faster_above: {one.faster_above}"
            for one in verdict.crossings
        ],
    )
    for role in Role:
        curve = curves[role]
        yield from _list(role.value, _points(curve)) if curve is not None else (f"    {role}: []",)
    yield from _list("ratio", [_ratio(one) for one in context.contrasts])


def _list(name: str, items: Sequence[str]) -> Iterator[str]:
    if not items:
        yield f"    {name}: []"
        return
    yield f"    {name}:"
    for item in items:
        yield f"      - {{{item}}}"


def _points(curve: SpeedCurve) -> list[str]:
    points = []
    for point in curve.points:
        told = f"in_flight: {number(point.in_flight)}, tok_s: {number(point.tok_s)}"
        if point.low is not None and point.high is not None:
            told += f", low: {number(point.low)}, high: {number(point.high)}"
        points.append(told + (", predicted: true" if point.predicted else ""))
    return points


def _ratio(contrast: Contrast) -> str:
    told = f"in_flight: {number(contrast.concurrency)}, ratio: {number(_times(contrast.log_ratio))}"
    if isfinite(contrast.low) and isfinite(contrast.high):
        told += f", low: {number(_times(contrast.low))}, high: {number(_times(contrast.high))}"
    marks = (("queued", contrast.queued), ("predicted", contrast.predicted))
    return told + f", repeats: {contrast.repeats}" + "".join(f", {name}: true" for name, marked in marks if marked)


def _times(log_ratio: float) -> float:
    return exp(max(-MAX_LOG, min(log_ratio, MAX_LOG)))

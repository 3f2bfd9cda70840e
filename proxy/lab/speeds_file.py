"""Writes curves.yaml: routing's curves in the form that `routing.curves_file` reads. Reading is config's.

What was measured, and what is said of it, come from those who write: a calibration, or the demo for its own engines.
"""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from math import exp, isfinite

from proxy.model import ROLES, Role
from proxy.routing.curves import ContextCurves, Curves, SpeedCurve
from proxy.routing.verdict import Contrast

# Figures of a number: speeds are known to two or three, and more would only make diffs of two calibrations longer.
FIGURES = 6
# Ratios are kept from one millionth to a million: beyond is no measurement, and the reader refuses it.
MAX_LOG = 13.8


def text(curves: Curves, comments: Sequence[str]) -> str:
    """The whole file, beginning with these lines for people."""
    contexts = [line for context in curves.contexts for line in _context(context)]
    return "\n".join((*(f"# {line}" for line in comments), *_header(curves), "contexts:", *contexts)) + "\n"


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


def _header(curves: Curves) -> Iterator[str]:
    yield "version: 1"
    yield f"measured_at: {quoted(curves.measured_at)}"
    yield f"placement: {curves.placement.value}"
    yield f"model: {quoted(curves.model)}"
    yield f"engines: {{{', '.join(f'{role}: {quoted(curves.versions.get(role))}' for role in ROLES)}}}"


def _context(context: ContextCurves) -> Iterator[str]:
    verdict = context.verdict
    yield f"  - context_tokens: {context.context_tokens}"
    yield f"    verdict: {verdict.kind.value}"
    yield f"    reason: {quoted(verdict.reason)}"
    yield from _list(
        "crossings",
        [
            f"at: {number(one.at)}, low: {number(one.low)}, high: {number(one.high)}, faster_above: {one.faster_above}"
            for one in verdict.crossings
        ],
    )
    for role, prefill in zip(ROLES, context.prefill_tok_s, strict=True):
        yield from _curve(role, context.of(role))
        if prefill is not None:
            yield f"    {role}_prefill_tok_s: {number(prefill)}"
    yield from _list("ratio", [_ratio(one) for one in context.contrasts])


def _curve(role: Role, curve: SpeedCurve | None) -> Iterator[str]:
    return _list(role.value, [] if curve is None else _points(curve))


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

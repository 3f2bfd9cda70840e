"""Plots of what was found: speeds of the arms by requests in flight, and their ratio with the crossover."""

from collections.abc import Callable, Iterator, Sequence
from math import exp, isfinite

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from proxy.lab.calibration.report import drawing
from proxy.lab.calibration.report.drawing import Palette
from proxy.lab.calibration.report.lines import IN_FLIGHT, LINES, Scene, cross, draw, intervals
from proxy.lab.calibration.values import Arm, Estimate
from proxy.routing.verdict import Crossing

# Ratios beyond this are drawn at the edge: one wild cell must not flatten all others.
MAX_RATIO = 8.0
_STEPS = (0.125, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 1.75, 2, 2.5, 3, 4, 5, 6, 8)
_FEW_STEPS = (0.125, 0.25, 0.5, 0.7, 1, 1.5, 2, 3, 4, 8)


def throughput(scene: Scene, palette: Palette) -> Figure | None:
    """Output tok/s of each arm."""
    return _speeds(scene, palette, lambda point: 1.0, "output tok/s, all requests")


def request(scene: Scene, palette: Palette) -> Figure | None:
    """Output tok/s of each of the requests in flight."""
    return _speeds(scene, palette, lambda point: 1.0 / point.concurrency, "output tok/s of each request")


def ratio(scene: Scene, palette: Palette) -> Figure | None:
    """Speculative by baseline, and where the crossover lies."""
    contrasts, crossings = scene.context.contrasts, scene.context.verdict.crossings
    if not contrasts:
        return None
    figure, (axes,) = drawing.figure()
    axes.axhline(1.0, color=palette["ink"], linewidth=1.2)
    line = LINES[Arm.SPECULATIVE]
    ratios = [_times(contrast.log_ratio) for contrast in contrasts]
    numbers = [contrast.concurrency for contrast in contrasts]
    predicted = [contrast.predicted for contrast in contrasts]
    draw(axes, numbers, ratios, line, palette, label="above 1: speculative is faster", predicted=predicted)
    cross(axes, list(zip(numbers, ratios, (contrast.queued for contrast in contrasts), strict=True)), palette)
    known = [(one, value) for one, value in zip(contrasts, ratios, strict=True) if isfinite(one.high - one.low)]
    spans = [(one.concurrency, value, _times(one.low), _times(one.high)) for one, value in known]
    intervals(axes, spans, palette[line.tone])
    _ratio_axis(axes, [*ratios, 1.0, *(end for *_, low, high in spans for end in (low, high))])
    drawing.in_flight(axes, numbers, IN_FLIGHT)
    span = "crossover, about" if scene.context.verdict.assumed else "crossover, 95 % interval"
    for index, crossing in enumerate(crossings):
        _band(axes, crossing, palette, span if index == 0 else None)
    drawing.legend(figure, axes, columns=2)
    return figure


def _speeds(scene: Scene, palette: Palette, scale: Callable[[Estimate], float], label: str) -> Figure | None:
    points = {arm: _drawable(found) for arm, found in scene.context.curves.items()}
    numbers = [point.concurrency for found in points.values() for point in found]
    if not numbers:
        return None
    figure, (axes,) = drawing.figure()
    for arm, found in points.items():
        line, at = LINES[arm], [point.concurrency for point in found]
        tok_s, predicted = [point.tok_s * scale(point) for point in found], [point.predicted for point in found]
        draw(axes, at, tok_s, line, palette, label=arm.value, predicted=predicted)
        intervals(axes, [span for point in found for span in _span(point, scale(point))], palette[line.tone])
        cross(axes, list(zip(at, tok_s, (point.queued for point in found), strict=True)), palette)
    axes.set_ylim(bottom=0)
    axes.set_ylabel(label)
    drawing.in_flight(axes, numbers, IN_FLIGHT)
    drawing.legend(figure, axes)
    return figure


def _span(point: Estimate, scale: float) -> Iterator[tuple[float, float, float, float]]:
    if point.low is not None and point.high is not None:
        yield point.concurrency, point.tok_s * scale, point.low * scale, point.high * scale


def _band(axes: Axes, crossing: Crossing, palette: Palette, label: str | None) -> None:
    """The interval hatched, and widened by a hair so that one between equal ends is seen."""
    low, high = crossing.low / 1.02, crossing.high * 1.02
    axes.axvspan(low, high, hatch="///", label=label, facecolor="none", edgecolor=palette["neutral"], linewidth=0.6)
    axes.axvline(crossing.at, color=palette["neutral"], linewidth=1.2, linestyle=(0, (2, 2)))


def _ratio_axis(axes: Axes, ratios: Sequence[float]) -> None:
    axes.set_yscale("log")
    low, high = min(ratios) / 1.08, max(ratios) * 1.08
    ticks = [step for step in _STEPS if low <= step <= high]
    if len(ticks) > len(_FEW_STEPS):
        ticks = [step for step in _FEW_STEPS if low <= step <= high]
    axes.set_ylim(low, high)
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel("speculative / baseline, tok/s")


def _drawable(points: Sequence[Estimate]) -> list[Estimate]:
    return [point for point in points if isfinite(point.tok_s) and point.tok_s > 0 and point.concurrency >= 1]


def _times(log_ratio: float) -> float:
    return min(max(exp(max(-50.0, min(log_ratio, 50.0))), 1 / MAX_RATIO), MAX_RATIO)

"""How each arm and each way is drawn: colour, marker and dash together, so that any one of them tells them apart."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes

from proxy.lab.calibration.advice.choices import Way
from proxy.lab.calibration.report.drawing import Palette
from proxy.lab.calibration.values import Arm, ContextFindings, Measurement
from proxy.model import Placement

IN_FLIGHT = "requests in flight"


class Line(NamedTuple):
    """How one arm or way is drawn."""

    tone: str
    marker: str
    dash: str | tuple[int, tuple[float, ...]]


LINES: Mapping[Arm, Line] = {
    Arm.SPECULATIVE: Line("speculative", "o", "-"),
    Arm.BASELINE: Line("baseline", "s", (0, (5, 2))),
    Arm.ADAPTIVE: Line("adaptive", "^", (0, (1, 1.5))),
}
WAYS: Mapping[Way, Line] = {
    Way.ONLY_SPECULATIVE: Line("speculative", "o", "-"),
    Way.ONLY_BASELINE: Line("baseline", "s", (0, (5, 2))),
    Way.THRESHOLD: Line("neutral", "D", (0, (4, 2, 1, 2))),
    Way.OVERFLOW: Line("overflow", "v", (0, (3, 1.5))),
    Way.MARGINAL: Line("marginal", "P", "-"),
    Way.CONSOLIDATE: Line("ink", "x", (0, (1, 2))),
    Way.ADAPTIVE: Line("adaptive", "^", (0, (1, 1.5))),
}


class Scene(NamedTuple):
    """What a plot may draw from: one context, its usable cells, and whether both arms have GPUs of their own."""

    context: ContextFindings
    cells: Sequence[Measurement]
    placement: Placement


def draw(
    axes: Axes,
    at: Sequence[float],
    values: Sequence[float],
    line: Line,
    palette: Palette,
    *,
    label: str | None = None,
    predicted: Sequence[bool] = (),
) -> None:
    """One line with its markers, hollow where the value was `predicted`."""
    guessed = [place for place, one in enumerate(predicted) if one]
    full = [place for place in range(len(at)) if place not in guessed]
    axes.plot(at, values, label=label, markevery=full, **_look(line, palette))
    if guessed:
        hollow = {**_look(line, palette), "linestyle": "none", "markerfacecolor": "none"}
        axes.plot([at[place] for place in guessed], [values[place] for place in guessed], **hollow)


def draw_thin(axes: Axes, at: Sequence[float], values: Sequence[float], line: Line, palette: Palette) -> None:
    """The same line for what is beside the point: thin, with small hollow markers."""
    thin = {"linewidth": 0.8, "markerfacecolor": "none", "markersize": 3.5}
    axes.plot(at, values, **{**_look(line, palette), **thin})


def intervals(axes: Axes, told: Sequence[tuple[float, float, float, float]], colour: str) -> None:
    """Whiskers at (x, value, low, high); mostly shorter than the marker, and then hidden by it."""
    if told:
        below = [max(0.0, value - low) for _, value, low, _ in told]
        above = [max(0.0, high - value) for _, value, _, high in told]
        at, values = [x for x, *_ in told], [value for _, value, *_ in told]
        axes.errorbar(at, values, yerr=[below, above], fmt="none", ecolor=colour, elinewidth=1.2, capsize=2.5)


def cross(axes: Axes, told: Sequence[tuple[float, float, bool]], palette: Palette) -> None:
    """A cross over each (x, value) that an engine with a queue gave."""
    queued = [(x, value) for x, value, waited in told if waited]
    if queued:
        at, values = zip(*queued, strict=True)
        axes.plot(at, values, color=palette["ink"], linestyle="none", marker="x", markersize=9, markeredgewidth=0.9)


def _look(line: Line, palette: Palette) -> dict[str, Any]:
    return {"color": palette[line.tone], "marker": line.marker, "linestyle": line.dash}

"""The plots of one context: which there are, what each shows, and in which forms they are to be had.

How they look is in drawing.py. No foreign text is drawn, so nothing in them has to be trusted.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from matplotlib.figure import Figure

from proxy.lab.calibration.report import drawing
from proxy.lab.calibration.report.drawing import Palette
from proxy.lab.calibration.report.lines import Scene
from proxy.lab.calibration.report.plot_cells import acceptance, latency
from proxy.lab.calibration.report.plot_choices import ways
from proxy.lab.calibration.report.plot_speeds import ratio, request, throughput
from proxy.lab.calibration.values import ContextFindings, Measurement
from proxy.model import Placement


@dataclass(frozen=True, slots=True)
class Plot:
    """One picture for a page and as a PNG, and what it shows in a sentence, for those too who cannot see it."""

    name: str
    title: str
    sentence: str
    inline: str
    png: bytes

    @property
    def svg(self) -> str:
        """The picture as a file of its own."""
        return drawing.standing_alone(self.inline)


class _Kind(NamedTuple):
    name: str
    title: str
    sentence: str
    drawn: Callable[[Scene, Palette], Figure | None]


_KINDS = (
    _Kind(
        "throughput",
        "Throughput",
        "Output tokens a second of each arm by requests in flight, with 95 % intervals where there are any. Hollow: "
        "predicted. Crossed: the engine had a queue.",
        throughput,
    ),
    _Kind(
        "ratio",
        "Speculative against baseline",
        "Ratio of their tokens a second with its interval: 95 %, assumed where it was measured less than three times. "
        "Where that holds 1, no difference was shown.",
        ratio,
    ),
    _Kind("request", "Speed of one request", "Output tokens a second that each request in flight gets.", request),
    _Kind(
        "acceptance",
        "Tokens gained in a step",
        "Tokens that a sequence gains in one step, the verified one included.",
        acceptance,
    ),
    _Kind(
        "ways",
        "What each way of using both would give",
        "Above: the speed of a request, in per cent of the best way at that load. Below: the share on speculative.",
        ways,
    ),
    _Kind(
        "latency",
        "First token and time per token",
        "Median (thick) and 99th percentile (thin, hollow) of the time to the first token and of the time per token.",
        latency,
    ),
)


def draw(context: ContextFindings, measurements: Sequence[Measurement], placement: Placement) -> Iterator[Plot]:
    """The plots that this context has something for; `measurements` may hold cells of other conditions."""
    cells = [one for one in measurements if one.cell.condition == context.condition and one.usable]
    scene = Scene(context, cells, placement)
    for kind in _KINDS:
        name = f"{kind.name}-{context.condition.context_tokens}"
        with drawing.style(drawing.STAND_INS, name):
            figure = kind.drawn(scene, drawing.STAND_INS)
            inline = "" if figure is None else drawing.svg(figure)
        with drawing.style(drawing.LIGHT, name):
            light = None if figure is None else kind.drawn(scene, drawing.LIGHT)
            png = b"" if light is None else drawing.png(light)
        if inline:
            yield Plot(name, kind.title, kind.sentence, inline, png)

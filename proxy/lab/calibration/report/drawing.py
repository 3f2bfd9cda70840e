"""How plots look, and how a figure becomes SVG that takes its colours from the page. What is drawn is in plots.py.

A figure is drawn twice: with stand-in colours that become CSS variables (SVG, for light and dark), and in the light
ones (PNG). Lines differ by marker and dash as well, so that nothing hangs on colour.
"""

import io
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FixedLocator, NullFormatter

# Inches. At 72 points an inch the drawing is 360 wide, so its text keeps its size on a telephone.
WIDTH, HEIGHT = 5.0, 3.3
# Dots an inch of the PNG: sharp on a dense screen, and still some 40 kB.
PNG_DPI = 180


class Tone(NamedTuple):
    """One colour by its name as a CSS variable, for light and for dark ground."""

    name: str
    light: str
    dark: str


TONES = (
    Tone("ink", "#1d2430", "#e4e8ee"),
    Tone("grid", "#d8dde4", "#39414d"),
    Tone("speculative", "#0067a8", "#5cb8f5"),
    Tone("baseline", "#bd4a08", "#ff9a52"),
    Tone("adaptive", "#157a45", "#58d68d"),
    Tone("marginal", "#7a2fb8", "#c995f5"),
    Tone("overflow", "#8a6d00", "#e3c341"),
    Tone("neutral", "#5c6777", "#a0abba"),
)


@dataclass(frozen=True, slots=True)
class Palette:
    """A colour for each tone's name."""

    colours: Mapping[str, str]

    def __getitem__(self, name: str) -> str:
        return self.colours[name]


# Colours that nothing else has, by which a tone is found again in the SVG.
_STAND_INS = {tone.name: f"#0{index}0{index}f{index}" for index, tone in enumerate(TONES)}
STAND_INS = Palette(_STAND_INS)
LIGHT = Palette({tone.name: tone.light for tone in TONES})


@contextmanager
def style(palette: Palette, salt: str) -> Iterator[None]:
    """Within it figures have the house's look; `salt` keeps the ids of one SVG apart from those of another."""
    ink, grid = palette["ink"], palette["grid"]
    settings: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": salt,
        "font.family": "sans-serif",
        "font.size": 9.5,
        "axes.labelsize": 9.5,
        "xtick.labelsize": 9,
        "ytick.labelsize": 9,
        "legend.fontsize": 9,
        "text.color": ink,
        "axes.labelcolor": ink,
        "xtick.color": ink,
        "ytick.color": ink,
        "axes.edgecolor": grid,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.prop_cycle": f"cycler('color', ['{ink}'])",
        "patch.facecolor": ink,
        "grid.color": grid,
        "grid.linewidth": 0.6,
        "axes.facecolor": "none",
        "figure.facecolor": "none",
        "legend.frameon": False,
        "lines.linewidth": 1.6,
        "lines.markersize": 4.5,
        "hatch.linewidth": 0.5,
    }
    with mpl.rc_context(settings):
        yield


def figure(panels: int = 1, height: float = HEIGHT) -> tuple[Figure, list[Axes]]:
    """An empty figure with panels one above the other that share their x axis."""
    drawn = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = drawn.subplots(panels, 1, sharex=True, squeeze=False)
    return drawn, [row[0] for row in axes]


def in_flight(axes: Axes, numbers: Iterable[float], label: str) -> None:
    """A logarithmic x axis: a tick for each doubling, and small ones where something was measured."""
    measured = sorted(set(numbers))
    axes.set_xscale("log")
    least, most = measured[0], measured[-1]
    ticks = [2.0**power for power in range(40) if least <= 2**power <= most]
    # The last number measured is worth a label where the doubling before it leaves room.
    if not ticks or most / ticks[-1] > 1.5:
        ticks.append(most)
    # A telephone has room for ten labels.
    step = -(-len(ticks) // 10)
    ticks = ticks[::-1][::step][::-1]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_major_formatter(FixedFormatter([f"{tick:g}" for tick in ticks]))
    axes.xaxis.set_minor_locator(FixedLocator(measured))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlim(least / 1.15, most * 1.15)
    axes.set_xlabel(label)


def legend(drawn: Figure, axes: Axes, columns: int = 3) -> None:
    """The legend above the figure, where it covers nothing."""
    lines, names = axes.get_legend_handles_labels()
    if names:
        drawn.legend(lines, names, loc="outside upper left", ncols=columns, handlelength=2.6, columnspacing=1.4)


def svg(drawn: Figure) -> str:
    """The figure as an `<svg>` element without foreign declarations or fixed colours, for a page that has the tones."""
    buffer = io.StringIO()
    drawn.savefig(buffer, format="svg", transparent=True)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    # Names of groups repeat from figure to figure; what is referred to has a salted id and keeps it.
    text = re.sub(r' id="[A-Za-z0-9]+(?:\.[a-z]+)?_\d+"', "", text)
    for name, stand_in in _STAND_INS.items():
        text = text.replace(stand_in, f"var(--{name})")
    text = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", text, flags=re.DOTALL)
    text = re.sub(r"font-family: [^;\"]*;? ?| transform=\"rotate\(-0 [^\"]*\"", "", text)
    text = re.sub(r"-?\d+\.\d{3,}", lambda found: f"{float(found[0]):.2f}", text)
    return re.sub(r"\s*\n\s*", "\n", text).strip() + "\n"


def standing_alone(text: str) -> str:
    """The same as a file of its own, with the tones in it for both grounds."""
    tones = f"<style>{css()} svg {{ font-family: system-ui, sans-serif; stroke-linejoin: round }}</style>"
    return '<?xml version="1.0" encoding="utf-8"?>\n' + re.sub(r"(<svg[^>]*>)", rf"\1{tones}", text, count=1)


def css() -> str:
    """The tones as CSS variables."""
    light = "; ".join(f"--{tone.name}: {tone.light}" for tone in TONES)
    dark = "; ".join(f"--{tone.name}: {tone.dark}" for tone in TONES)
    return f":root {{ {light} }} @media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}"


def png(drawn: Figure) -> bytes:
    """The figure on white."""
    buffer = io.BytesIO()
    drawn.savefig(buffer, format="png", dpi=PNG_DPI, facecolor="white", metadata={"Software": None})
    return buffer.getvalue()

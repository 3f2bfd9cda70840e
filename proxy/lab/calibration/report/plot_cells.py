"""Plots of what single cells tell besides their speed: latencies, and tokens gained in a step."""

from collections.abc import Sequence
from statistics import median

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from proxy.lab.calibration.report import drawing
from proxy.lab.calibration.report.drawing import Palette
from proxy.lab.calibration.report.lines import IN_FLIGHT, LINES, Scene, draw, draw_thin
from proxy.lab.calibration.values import Arm, Measurement, Quantiles


def latency(scene: Scene, palette: Palette) -> Figure | None:
    """Time to the first token and time per token, typical and worst."""
    ttft = {arm: _quantiles([(one, one.ttft_s) for one in scene.cells], arm) for arm in LINES}
    tpot = {arm: _quantiles([(one, one.tpot_s) for one in scene.cells], arm) for arm in LINES}
    panels = [(label, arms) for label, arms in (("TTFT, ms", ttft), ("TPOT, ms", tpot)) if any(arms.values())]
    if not panels:
        return None
    numbers = [n for _, arms in panels for rows in arms.values() for n in rows]
    figure, all_axes = drawing.figure(len(panels), height=drawing.HEIGHT if len(panels) == 1 else 4.4)
    for axes, (label, arms) in zip(all_axes, panels, strict=True):
        for arm, rows in arms.items():
            if rows:
                at = sorted(rows)
                draw(axes, at, [rows[n][0] for n in at], LINES[arm], palette, label=arm.value)
                draw_thin(axes, at, [rows[n][1] for n in at], LINES[arm], palette)
        axes.set_ylabel(label)
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
        drawing.in_flight(axes, numbers, IN_FLIGHT if axes is all_axes[-1] else "")
    drawing.legend(figure, all_axes[-1])
    return figure


def acceptance(scene: Scene, palette: Palette) -> Figure | None:
    """Tokens gained in a step by the arms that speculate."""
    arms = {arm: _gained(scene.cells, arm) for arm in (Arm.SPECULATIVE, Arm.ADAPTIVE)}
    numbers = [n for rows in arms.values() for n in rows]
    if not numbers:
        return None
    figure, (axes,) = drawing.figure()
    axes.axhline(1.0, color=palette["neutral"], linewidth=1.2, linestyle=(0, (2, 2)), label="without speculation")
    for arm, rows in arms.items():
        if rows:
            at = sorted(rows)
            draw(axes, at, [rows[n] for n in at], LINES[arm], palette, label=arm.value)
    axes.set_ylim(0, 1.1 * max(1.0, *(value for rows in arms.values() for value in rows.values())))
    axes.set_ylabel("tokens of a sequence per step")
    drawing.in_flight(axes, numbers, IN_FLIGHT)
    drawing.legend(figure, axes)
    return figure


def _quantiles(told: Sequence[tuple[Measurement, Quantiles | None]], arm: Arm) -> dict[int, tuple[float, float]]:
    """Median and 99th percentile in milliseconds by concurrency, each the median over the repeats."""
    found: dict[int, list[Quantiles]] = {}
    for one, value in told:
        if one.cell.arm is arm and value is not None and value.p50 > 0 and value.p99 > 0:
            found.setdefault(one.cell.concurrency, []).append(value)
    return {
        n: (1000.0 * median(row.p50 for row in rows), 1000.0 * median(row.p99 for row in rows))
        for n, rows in found.items()
    }


def _gained(cells: Sequence[Measurement], arm: Arm) -> dict[int, float]:
    found: dict[int, list[float]] = {}
    for one in cells:
        gained = one.accept_length if one.accept_length is not None else one.tokens_per_step
        if one.cell.arm is arm and gained is not None:
            found.setdefault(one.cell.concurrency, []).append(gained)
    return {n: median(values) for n, values in found.items()}

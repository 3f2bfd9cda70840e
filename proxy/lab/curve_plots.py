"""A curve as a picture: letters for a terminal, or a file by matplotlib, which is loaded only for that."""

import math
from pathlib import Path

from proxy.errors import ConfigError
from proxy.lab.curves import Curve, crossings
from proxy.model import Role

_WIDTH, _HEIGHT = 60, 14
_LETTERS = {Role.SPECULATIVE: "s", Role.BASELINE: "b"}
_BOTH = "*"

# Told apart without colour too: the markers differ.
_STYLES = {Role.SPECULATIVE: ("#c2410c", "o"), Role.BASELINE: ("#1d4ed8", "s")}


def letters(curve: Curve) -> str:
    """Throughput against concurrency, both axes logarithmic: s speculative, b baseline, * where they share a place."""
    marks = [(role, speed.concurrency, speed.tok_s) for role in Role for speed in curve.speeds(role)]
    batches, speeds = [mark[1] for mark in marks], [mark[2] for mark in marks]
    grid = [[" "] * _WIDTH for _ in range(_HEIGHT)]
    for role, batch, tok_s in marks:
        column = _place(batch, batches, _WIDTH)
        row = _HEIGHT - 1 - _place(tok_s, speeds, _HEIGHT)
        grid[row][column] = _LETTERS[role] if grid[row][column] in {" ", _LETTERS[role]} else _BOTH
    names = [f"{max(speeds):.0f}", *[""] * (_HEIGHT - 2), f"{min(speeds):.0f}"]
    wide = max(len(name) for name in names)
    rows = [f"{name:>{wide}} |{''.join(row).rstrip()}" for name, row in zip(names, grid, strict=True)]
    last = f"{max(batches):g}"
    axis = f"{' ' * wide} +{'-' * _WIDTH}"
    foot = f"{' ' * wide}  {min(batches):<{_WIDTH - len(last)}g}{last}"
    head = f"{' ' * wide}  tok/s (s speculative, b baseline, * both) by sequences in flight"
    return "\n".join([head, *rows, axis, foot]) + "\n"


def picture(curve: Curve, path: Path, kind: str) -> None:
    """Write a picture of that kind (`svg` or `png`). Raises `ConfigError` where the file cannot be written."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - loads for a second, and only this needs it

    figure = Figure(figsize=(7.0, 6.0), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    for role in Role:
        colour, marker = _STYLES[role]
        speeds = curve.speeds(role)
        above.plot([s.concurrency for s in speeds], [s.tok_s for s in speeds], color=colour, marker=marker, label=role)
    above.set(xscale="log", yscale="log", ylabel="output tok/s, whole server", title=curve.title)
    above.legend()
    ratios = [point.speculative / point.baseline for point in curve.points]
    below.axhline(1.0, color="#6b7280", linewidth=1)
    below.plot([point.concurrency for point in curve.points], ratios, color="#111827", marker=".")
    for found in crossings(curve):
        below.axvline(found.at, color="#6b7280", linestyle=":")
    below.set(xlabel="sequences in flight", ylabel="speculative / baseline")
    every = sorted({speed.concurrency for role in Role for speed in curve.speeds(role)})
    low, high = above.get_ylim()
    ticks = [n * 10.0**power for power in range(7) for n in (1, 2, 5) if low <= n * 10.0**power <= high]
    above.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    above.minorticks_off()
    below.set_xticks(every, [f"{at:g}" for at in every], minor=False)
    below.minorticks_off()
    for axes in (above, below):
        axes.grid(visible=True, color="#e5e7eb")
    if curve.assumed_baseline:
        figure.text(0.99, 0.005, "only ratios are published; tok/s are assumed", ha="right", fontsize=8)
    try:
        figure.savefig(path, format=kind, metadata={"Date": None} if kind == "svg" else None)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror}); mend: choose another place") from error


def _place(value: float, among: list[float], cells: int) -> int:
    low, high = math.log(min(among)), math.log(max(among))
    return round((math.log(value) - low) / (high - low) * (cells - 1)) if high > low else 0

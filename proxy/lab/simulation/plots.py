"""Comparisons as pictures: mean time and goodput by load, a line for each way, and the oracles in black. Needs
matplotlib."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from proxy.errors import ConfigError
from proxy.lab.simulation.cells import ORACLES, Row

# Told apart without colour too.
_MARKERS = "osD^vPX*<>hd"


def pictures(rows: Sequence[Row], folder: Path) -> list[Path]:
    """One SVG for each curve, placement and traffic that has loads. Raises `ConfigError` where it cannot be written."""
    themes: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        if row.load is not None:
            themes.setdefault((row.curve, row.placement, row.arrivals), []).append(row)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return [_picture(theme, block, folder) for theme, block in themes.items()]
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be written ({error.strerror}); mend: choose another place") from error


def _picture(theme: tuple[str, str, str], rows: Sequence[Row], folder: Path) -> Path:
    from matplotlib.figure import Figure  # noqa: PLC0415 - loads for a second, and only this needs it
    from matplotlib.ticker import LogLocator, NullFormatter, PercentFormatter, StrMethodFormatter  # noqa: PLC0415

    figure = Figure(figsize=(9.0, 7.0), layout="constrained")
    times, good = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    for place, policy in enumerate(dict.fromkeys(row.policy for row in rows)):
        mine = sorted((row for row in rows if row.policy == policy), key=lambda row: row.load or 0.0)
        loads = [row.load or 0.0 for row in mine]
        # What was asked for lies above the control arms, and is thicker.
        style: dict[str, Any] = {"marker": _MARKERS[place % len(_MARKERS)], "color": f"C{place % 10}"}
        style |= {"linewidth": 1.0, "markersize": 4} if mine[0].control else {"linewidth": 2.4, "zorder": 3}
        times.plot(loads, [row.tally.mean_e2e_s for row in mine], label=policy, **style)
        good.plot(loads, [row.tally.goodput for row in mine], **style)
    for name, pattern in zip(ORACLES, ("-.", ":", "--"), strict=True):
        known = sorted({(row.load or 0.0, row.oracle[name].mean_e2e_s) for row in rows if name in row.oracle})
        if known:
            times.plot(*zip(*known, strict=True), linestyle=pattern, linewidth=1.5, color="black", label=name)
    times.set(yscale="log", ylabel="mean seconds of a request")
    figure.suptitle("\n".join(" · ".join(words) for words in (theme, rows[0].course) if words), fontsize=11)
    # One and a half decades are the most there is: powers of ten alone would be one label.
    times.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 3.0, 5.0, 7.0)))
    times.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    times.yaxis.set_minor_formatter(NullFormatter())
    good.set(xlabel="load (share of capacity)", ylabel="within the goals", ylim=(-0.02, 1.02))
    good.yaxis.set_major_formatter(PercentFormatter(1.0))
    for axes in (times, good):
        axes.grid(visible=True, color="#e5e7eb")
    figure.legend(fontsize=8, loc="outside right upper")
    path = folder / f"{'_'.join(theme).replace(':', '_').replace('/', '_')}.svg"
    figure.savefig(path, format="svg", metadata={"Date": None})
    return path

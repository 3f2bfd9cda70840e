"""Comparisons as pictures: mean time by load, a line for each way, and the oracles dotted. Needs matplotlib."""

from collections.abc import Sequence
from pathlib import Path

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

    figure = Figure(figsize=(7.5, 5.0), layout="constrained")
    axes = figure.subplots()
    for place, policy in enumerate(dict.fromkeys(row.policy for row in rows)):
        mine = sorted((row for row in rows if row.policy == policy), key=lambda row: row.load or 0.0)
        loads = [row.load or 0.0 for row in mine]
        means = [row.tally.mean_e2e_s for row in mine]
        axes.plot(loads, means, marker=_MARKERS[place % len(_MARKERS)], markersize=5, label=policy)
    for name in ORACLES:
        known = sorted({(row.load or 0.0, row.oracle[name].mean_e2e_s) for row in rows if name in row.oracle})
        if known:
            axes.plot(*zip(*known, strict=True), linestyle=":", linewidth=1.5, label=name)
    axes.set(
        yscale="log", xlabel="load (share of capacity)", ylabel="mean seconds of a request", title=" · ".join(theme)
    )
    axes.grid(visible=True, which="both", color="#e5e7eb")
    axes.legend(fontsize=8)
    path = folder / f"{'_'.join(theme).replace(':', '_')}.svg"
    figure.savefig(path, format="svg", metadata={"Date": None})
    return path

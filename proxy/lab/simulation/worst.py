"""The cell in which each way does worst, for comparisons of many cells. One cell's table is in rows.py."""

from collections.abc import Sequence
from statistics import median

from proxy.lab.loadtable import aligned
from proxy.lab.simulation.cells import ORACLES, Row

_HEAD = ("policy", "cells", "above", "median", "worst", "in")


def summary(rows: Sequence[Row]) -> str:
    """A line for each way and oracle; nothing where there is one cell only."""
    cells = {_cell(row) for row in rows}
    policies = list(dict.fromkeys(row.policy for row in rows))
    lines = [line for policy in policies for name in ORACLES for line in _lines(rows, policy, name)]
    if len(cells) < 2 or not lines:
        return ""
    return f"worst of {len(cells)} cells\n{aligned([_HEAD, *lines])}\n"


def _lines(rows: Sequence[Row], policy: str, name: str) -> list[tuple[str, ...]]:
    known = [row for row in rows if row.policy == policy and name in row.regret]
    if not known:
        return []
    regrets = [row.regret[name].mean for row in known]
    worst = max(known, key=lambda row: row.regret[name].mean)
    at_worst = f"{worst.regret[name].mean:+.1%}"
    return [(policy, str(len(known)), name, f"{median(regrets):+.1%}", at_worst, ", ".join(_cell(worst)))]


def _cell(row: Row) -> tuple[str, ...]:
    load = () if row.load is None else (f"load {row.load:g}",)
    return (row.curve, row.placement, row.arrivals, *load)

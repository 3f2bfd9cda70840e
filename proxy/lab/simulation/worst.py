"""The cell in which each way does worst, for comparisons of many cells. One cell's table is in rows.py."""

from collections.abc import Sequence
from math import inf
from statistics import median

from proxy.lab.loadtable import aligned
from proxy.lab.simulation.cells import ORACLES, Row
from proxy.lab.simulation.rows import OVERLOADED

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
    known = [row for row in rows if row.policy == policy and name in row.oracle]
    if not known:
        return []
    regrets = [_regret(row, name) for row in known]
    worst = max(known, key=lambda row: _regret(row, name))
    cell = ", ".join(_cell(worst))
    return [(policy, str(len(known)), name, _told(median(regrets)), _told(max(regrets)), cell)]


def _regret(row: Row, name: str) -> float:
    return row.regret[name].mean if row.overload is None else inf


def _told(regret: float) -> str:
    return OVERLOADED if regret == inf else f"{regret:+.1%}"


def _cell(row: Row) -> tuple[str, ...]:
    load = () if row.load is None else (f"load {row.load:g}",)
    return (row.curve, row.placement, row.arrivals, *load)

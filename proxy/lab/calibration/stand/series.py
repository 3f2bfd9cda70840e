"""Sums the series of an engine's Prometheus text by name: the counters that a calibration reads at both ends.

Which of them mean what is in engine_word.py; running and waiting sequences are read by protocol/exposition.py.
"""

import math
import re

_SAMPLE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{(.*)\})?[ \t]+(\S+)", re.MULTILINE)
_LABEL = re.compile(r'\b(\w+)="((?:[^"\\]|\\.)*)"')
# Ranks of one replica tell the same number each: only the first counts.
_RANKS = ("tp_rank", "pp_rank", "moe_ep_rank")

Series = dict[str, list[tuple[dict[str, str], float]]]


def read(text: str, names: frozenset[str]) -> Series:
    """Every sample of the named families with its labels, one rank of each replica, priorities by their total."""
    found: Series = {}
    for name, labels, value in _SAMPLE.findall(text):
        if name not in names:
            continue
        known, number = dict(_LABEL.findall(labels)), _number(value)
        if number is None or known.get("priority") or any(known.get(rank, "0") != "0" for rank in _RANKS):
            continue
        found.setdefault(name, []).append((known, number))
    return found


def total(series: Series, name: str, **labels: str) -> float | None:
    """The sum of the samples of `name` that have these labels; None where there are none."""
    rows = [
        value for known, value in series.get(name, ()) if all(known.get(key) == text for key, text in labels.items())
    ]
    return math.fsum(rows) if rows else None


def mean(series: Series, name: str) -> float | None:
    """The mean over the samples of `name`, for shares; None where there are none."""
    rows = [value for _, value in series.get(name, ())]
    return math.fsum(rows) / len(rows) if rows else None


def label(series: Series, name: str, key: str) -> str | None:
    """What a label of the first sample of `name` says, for series that exist to carry labels."""
    rows = series.get(name)
    return rows[0][0].get(key) if rows else None


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None

"""The shipped dashboard as a test reads it: its panels, and its queries with the variables put in."""

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "config" / "grafana" / "crossover.json"
_VARIABLE = re.compile(r"\$\{?(\w+)\}?")


@cache
def board() -> dict[str, Any]:
    """The whole of it."""
    read: dict[str, Any] = json.loads(FILE.read_text())
    return read


def panels() -> list[dict[str, Any]]:
    """Those that show something; rows are their headings."""
    return [each for each in board()["panels"] if each["type"] != "row"]


def queries() -> Iterator[tuple[str, str]]:
    """Each panel's title with each of its queries."""
    for panel in panels():
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


def annotations() -> list[str]:
    """The queries of the marks that lie over every panel."""
    return [each["expr"] for each in board()["annotations"]["list"] if "expr" in each]


def filled(query: str, **variables: str) -> str:
    """A query with its variables put in; one that is not among `variables` is a KeyError."""
    return _VARIABLE.sub(lambda found: variables[found[1]], query)

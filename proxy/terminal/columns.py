"""Texts in columns, as plain lines. What stands in them is decided elsewhere."""

from collections.abc import Sequence
from textwrap import wrap

from proxy.terminal.saying import harmless

# What stands for a number that is not known.
UNKNOWN = "-"


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of equal length, each column as wide as its widest cell; the first row is the head."""
    rows = [[harmless(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def labelled(label: str, text: str, width: int, indent: int = 13) -> list[str]:
    """A text behind its label, broken at `width` characters; the lines that follow are indented like the first."""
    begin, rest = label.ljust(indent), " " * indent
    return wrap(harmless(text), max(width, indent + 20), initial_indent=begin, subsequent_indent=rest) or [
        begin.rstrip()
    ]

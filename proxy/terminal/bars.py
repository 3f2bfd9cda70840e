"""Numbers as characters: a sparkline, and a bar of shares. Scaled by what is shown, which is told beside it."""

from collections.abc import Sequence
from typing import Any

from proxy.terminal.cells import is_number

BLOCKS = "▁▂▃▄▅▆▇█"
# For terminals that have no blocks.
ASCII_BLOCKS = "_.:-=+*#"


def sparkline(values: Sequence[Any], most: float, width: int, blocks: str = BLOCKS) -> str:
    """The last `width` values, a character each: blank for none, the lowest block for 0, the highest for `most`."""
    top = len(blocks) - 1
    return "".join(_block(each, most, top, blocks) for each in values[-width:])


def _block(value: Any, most: float, top: int, blocks: str) -> str:
    if not is_number(value):
        return " "
    if value <= 0 or most <= 0:
        return blocks[0]
    # Something is never drawn as nothing.
    return blocks[max(1, round(top * min(value / most, 1.0)))]


def bar(part: float, width: int, filled: str = "#", empty: str = "-") -> str:
    """A bar of `width` characters, `part` (0 to 1) of it filled."""
    full = round(min(max(part, 0.0), 1.0) * width)
    return filled * full + empty * (width - full)

"""Numbers of others as they stand in a cell: what is no number, or none that can be, is not known.

Words are made harmless in saying.py; where a cell stands is in status.py and frame.py.
"""

import time
from typing import Any, TypeGuard

from proxy.telling.figures import count, seconds
from proxy.terminal.columns import UNKNOWN

# No count, instant or duration of a proxy comes near it, and a float has no more digits that mean something.
MOST = 1e15


def is_number(value: Any) -> TypeGuard[int | float]:
    """Whether it is a number that can be drawn, added up and told: neither NaN, nor infinite, nor beyond MOST."""
    return isinstance(value, int | float) and -MOST < value < MOST


def figure(value: Any, form: str = "{:,}") -> str:
    """A number; a dash where it is not known."""
    return form.format(value) if is_number(value) else UNKNOWN


def counted(value: Any, thing: str) -> str:
    """So many of a thing."""
    return count(int(value), thing) if is_number(value) else f"{UNKNOWN} {thing}s"


def duration(value_s: Any) -> str:
    """A duration with its unit."""
    return seconds(value_s) if is_number(value_s) else UNKNOWN


def clock(at_s: Any) -> str:
    """The local time of day of unix seconds; blank where there is none."""
    if not is_number(at_s):
        return ""
    try:
        return time.strftime("%H:%M:%S", time.localtime(at_s))
    except (OverflowError, OSError, ValueError):  # a year that the system's calendar does not reach
        return ""

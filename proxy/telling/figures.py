"""Numbers as people read them: rounded to what matters, with their unit, never in exponents. No sentence is here."""

from math import isfinite

from proxy.model import Role

# Below it a duration is nothing to a person, and its digits are noise.
LEAST_S = 0.001
# Something younger is told as new: a page is drawn once a second.
JUST_NOW_S = 1.5


def seconds(value_s: float) -> str:
    """A duration in two digits (`0.021 s`, `3.2 s`), whole seconds from 10 on, minutes and hours where that is long;
    `an unknown time` of what is no number."""
    if not isfinite(value_s):
        return "an unknown time"
    if value_s < LEAST_S:
        return "under 0.001 s"
    if value_s < 9.95:
        return f"{value_s:.2g} s"
    if value_s < 120.0:
        return f"{value_s:.0f} s"
    return f"{value_s / 60:.0f} min" if value_s < 7200.0 else f"{value_s / 3600:,.0f} h"


def favoured(age_s: float) -> str:
    """Since when a role has the favour, as a part of a sentence."""
    if not isfinite(age_s):
        return "favoured since the start"
    return "newly favoured" if age_s < JUST_NOW_S else f"favoured for {seconds(age_s)}"


def about(number: float) -> str:
    """A number that is an estimate, in two digits: `260`, `1,300`."""
    if not isfinite(number):
        return "unknown"
    return f"{int(float(f'{number:.2g}')):,}" if number >= 1.0 else "1"


def count(number: int, thing: str) -> str:
    """So many of a thing: `1 sequence`, `8,192 tokens`."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def smooth(value: float) -> str:
    """A count that was smoothed, with one digit behind the point."""
    return f"{value:,.1f}" if isfinite(value) else "an unknown number"


def title(role: Role) -> str:
    """The role at the beginning of a sentence."""
    return role.value.capitalize()

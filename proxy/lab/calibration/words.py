"""How the numbers of a calibration are said in sentences and tables. What they mean is not here."""

from collections.abc import Iterable
from math import exp, isfinite

UNKNOWN = "-"


def percent(share: float) -> str:
    """A share: `3.7 %`, and no decimals from 100 % on, where they would say more than was measured."""
    return f"{100 * share:.0f} %" if abs(share) >= 0.9995 else f"{100 * share:.1f} %"


def speed(tok_s: float | None) -> str:
    """Tok/s with three or four figures: `92.7`, `773`; a dash where it is not known."""
    if tok_s is None or not isfinite(tok_s):
        return UNKNOWN
    return f"{tok_s:.2f}" if tok_s < 10 else f"{tok_s:.1f}" if tok_s < 100 else f"{tok_s:.0f}"


def figures(value: float) -> str:
    """Three figures, noughts at the end as well: `0.873`, `1.10`, `103`."""
    return f"{value:#.3g}".rstrip(".") if 1e-4 <= abs(value) < 1000 else f"{value:.3g}"


def times(log_ratio: float) -> str:
    """A ratio of speeds whose logarithm is known: `0.873`."""
    return figures(exp(max(-13.0, min(log_ratio, 13.0))))


def seconds(value: float | None) -> str:
    """A duration as people say it: `85 ms`, `2.41 s`, `47 min`, `2 h 30 min`."""
    if value is None or not isfinite(value):
        return UNKNOWN
    if value < 1:
        return f"{1000 * value:.3g} ms"
    if value < 120:
        return f"{value:.3g} s"
    minutes = round(value / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def listed(words: Iterable[object]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *most, last = (str(word) for word in words)
    return f"{', '.join(most)} and {last}" if most else last


def ended(sentence: str) -> str:
    """The sentence with its full stop."""
    return sentence if sentence.endswith((".", "!", "?")) else f"{sentence}."


def counted(count: int, one: str, many: str | None = None) -> str:
    """`1 cell`, `3 cells`."""
    return f"{count} {one if count == 1 else many or one + 's'}"

"""Measurements to figures: medians over rounds, ratios within a round, spreads, and the table. Pure."""

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from bench.jobs import PLAIN, STREAMS, TESTS, UNITS, Measurement

MICROSECONDS = 1e6


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure's values, a round each."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle one."""
        return statistics.median(self.values)

    @property
    def spread(self) -> float:
        """Greatest less least, as a share of the median."""
        return self._share(min(self.values), max(self.values))

    @property
    def middle_spread(self) -> float:
        """The same for the middle half of the rounds: it leaves out those in which the machine was slow as a whole."""
        if len(self.values) < 2:
            return 0.0
        low, _, high = statistics.quantiles(self.values, n=4, method="inclusive")
        return self._share(low, high)

    def as_json(self) -> dict[str, float]:
        """Rounded to what is worth keeping."""
        named = {
            "median": self.median,
            "low": min(self.values),
            "high": max(self.values),
            "spread": self.spread,
            "middle_spread": self.middle_spread,
        }
        return {name: float(f"{value:.4g}") for name, value in named.items()}

    def _share(self, low: float, high: float) -> float:
        return (high - low) / abs(self.median) if self.median else 0.0


Figures = dict[str, dict[str, dict[str, Figure]]]
Value = Callable[[Measurement], float | None]


def figures(measurements: Sequence[Measurement], *, base: str, direct: str) -> Figures:
    """{test: {contender: {figure: Figure}}}. A figure that a contender cannot have is absent: `direct` has no CPU time
    of its own, and without `base` or `direct` in the run nothing compares to them."""
    found: Figures = {}
    for test in TESTS:
        of_test = [each for each in measurements if each.test == test]
        for name in dict.fromkeys(each.contender for each in of_test):
            own = [each for each in of_test if each.contender == name]
            to_base, to_direct = _of(of_test, base), _of(of_test, direct)
            values: dict[str, list[float | None]] = {
                "cpu_us": [_cpu_us(each) for each in own],
                "cpu_over_base": [_over(_cpu_us(each), _at(to_base, each, _cpu_us)) for each in own],
                "user_share": [_user_share(each) for each in own],
                "units_per_s": [each.load.units / each.load.window_s for each in own],
                "reads_per_unit": [each.load.reads / max(1, each.load.units) for each in own],
                "delivered_share": [_delivered(each) for each in own],
                "first_byte_us": [_first_byte_us(each) for each in own],
                "added_first_byte_us": [
                    None if name == direct else _less(_first_byte_us(each), _at(to_direct, each, _first_byte_us))
                    for each in own
                ],
                "harness_share": [each.load.harness_cpu_s / each.load.window_s for each in own],
                "others_share": [each.load.others_cpu_s / each.load.window_s for each in own],
            }
            found.setdefault(test, {})[name] = {
                what: figure for what, each in values.items() if (figure := _figure(each)) is not None
            }
    return found


def table(test: str, found: dict[str, dict[str, Figure]]) -> str:
    """One test's figures as text, each with its spread behind it."""
    unit = UNITS[test]
    columns = [
        ("cpu_us", f"CPU us/{unit}", "{:.1f}"),
        ("cpu_over_base", "/ bare", "{:.2f}"),
        ("user_share", "user share", "{:.2f}"),
        ("units_per_s", f"{unit}s/s", "{:.0f}"),
        ("reads_per_unit", f"reads/{unit}", "{:.2f}"),
    ]
    if test == STREAMS:
        columns += [
            ("delivered_share", "delivered", "{:.3f}"),
            ("first_byte_us", "first byte us", "{:.0f}"),
            ("added_first_byte_us", "added us", "{:.0f}"),
        ]
    columns += [("harness_share", "harness", "{:.2f}"), ("others_share", "others", "{:.2f}")]
    rows = [("contender", *(title for _, title, _ in columns))]
    for name, own in found.items():
        rows.append((name, *(_cell(own.get(key), form) for key, _, form in columns)))
    return "\n".join(_aligned(rows))


def _cell(figure: Figure | None, form: str) -> str:
    return "-" if figure is None else f"{form.format(figure.median)} ({figure.spread:.0%})"


def _aligned(rows: Sequence[Sequence[str]]) -> Iterable[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        first, *rest = (
            cell.ljust(width) if not at else cell.rjust(width) for at, (cell, width) in _numbered(row, widths)
        )
        yield "  ".join((first, *rest)).rstrip()


def _numbered(row: Sequence[str], widths: Sequence[int]) -> "enumerate[tuple[str, int]]":
    return enumerate(zip(row, widths, strict=True))


def _figure(values: Sequence[float | None]) -> Figure | None:
    known = [value for value in values if value is not None]
    return Figure(tuple(known)) if known else None


def _of(measurements: Sequence[Measurement], contender: str) -> dict[int, Measurement]:
    return {each.round: each for each in measurements if each.contender == contender}


def _at(others: dict[int, Measurement], own: Measurement, value: Value) -> float | None:
    """The other contender's value in the same round."""
    other = others.get(own.round)
    return None if other is None else value(other)


def _cpu_us(each: Measurement) -> float | None:
    cpu_s = each.load.cpu_s
    return None if cpu_s is None else cpu_s / max(1, each.load.units) * MICROSECONDS


def _user_share(each: Measurement) -> float | None:
    cpu_s, user_s = each.load.cpu_s, each.load.user_s
    return None if user_s is None or not cpu_s else min(1.0, user_s / cpu_s)


def _delivered(each: Measurement) -> float | None:
    return None if each.test == PLAIN or not each.load.offered else each.load.units / each.load.offered


def _first_byte_us(each: Measurement) -> float | None:
    first_s = each.load.first_byte_s
    return None if first_s is None else first_s * MICROSECONDS


def _over(value: float | None, base: float | None) -> float | None:
    return value / base if value is not None and base else None


def _less(value: float | None, other: float | None) -> float | None:
    return value - other if value is not None and other is not None else None

"""Measurements to figures: medians over rounds, ratios and differences within a round, spreads. Pure; the tables are in
tables.py."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bench.jobs import IDLE, PLAIN, STOPPED, STREAMS, TESTS, Load, Measurement

MICROSECONDS = 1e6
KIB = 1024
MIB = 1024 * 1024


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


def figures(measurements: Sequence[Measurement], *, bases: Sequence[str], direct: str) -> Figures:
    """{test: {contender: {figure: Figure}}}. A figure that a contender cannot have is absent: `direct` has no CPU time
    of its own, and nothing compares to a base, or to `direct`, that was not measured in the same round."""
    found: Figures = {}
    for test in TESTS:
        of_test = [each for each in measurements if each.test == test and each.load is not None]
        for name in dict.fromkeys(each.contender for each in of_test):
            own = [each for each in of_test if each.contender == name]
            values = {what: [value(each) for each in own] for what, value in VALUES.items()}
            for base in bases:
                values[f"over_{base}"] = _compared(own, of_test, base, cost, _over)
            if name != direct:
                for what in ADDED:
                    values[f"added_{what}"] = _compared(own, of_test, direct, VALUES[what], _less)
            known = {what: tuple(one for one in each if one is not None) for what, each in values.items()}
            found.setdefault(test, {})[name] = {what: Figure(each) for what, each in known.items() if each}
    return found


def cost(each: Measurement) -> float | None:
    """What the test is about, and the ratios compare: CPU time of a unit, or memory of an idle stream."""
    return _kib_per_stream(each) if each.test == IDLE else _cpu_us(each)


def _compared(
    own: Sequence[Measurement],
    of_test: Sequence[Measurement],
    other: str,
    value: Value,
    compare: Callable[[float | None, float | None], float | None],
) -> list[float | None]:
    """Each value beside the other contender's of the same round."""
    others = {each.round: value(each) for each in of_test if each.contender == other}
    return [compare(value(each), others.get(each.round)) for each in own]


def _over(value: float | None, base: float | None) -> float | None:
    return value / base if value is not None and base else None


def _less(value: float | None, other: float | None) -> float | None:
    return value - other if value is not None and other is not None else None


def _cpu_us(each: Measurement) -> float | None:
    load = _load(each)
    if each.test in (IDLE, STOPPED) or load.cpu_s is None or not load.units:
        return None
    return load.cpu_s / load.units * MICROSECONDS


def _user_share(each: Measurement) -> float | None:
    load = _load(each)
    return None if load.user_s is None or not load.cpu_s else min(1.0, load.user_s / load.cpu_s)


def _reads_per_unit(each: Measurement) -> float | None:
    load = _load(each)
    return load.reads / load.units if load.units else None


def _delivered_share(each: Measurement) -> float | None:
    load = _load(each)
    return None if each.test == PLAIN or not load.offered else load.units / load.offered


def _kib_per_stream(each: Measurement) -> float | None:
    """Memory that each stream took. Only of tests that begin on a contender just started."""
    load = _load(each)
    if each.test not in (IDLE, STREAMS) or load.before_bytes is None or load.after_bytes is None or not load.streams:
        return None
    return (load.after_bytes - load.before_bytes) / load.streams / KIB


def _grew_mib(each: Measurement) -> float | None:
    load = _load(each)
    if each.test != STOPPED or load.before_bytes is None or load.peak_bytes is None:
        return None
    return (load.peak_bytes - load.before_bytes) / MIB


def _scaled(pick: Callable[[Load], float | None], factor: float) -> Value:
    """A field of a load in another unit."""

    def value(each: Measurement) -> float | None:
        found = pick(_load(each))
        return None if found is None else found * factor

    return value


def _load(each: Measurement) -> Load:
    assert each.load is not None
    return each.load


VALUES: Mapping[str, Value] = {
    "cpu_us": _cpu_us,
    "user_share": _user_share,
    "units_per_s": _scaled(lambda load: load.units / load.window_s, 1),
    "reads_per_unit": _reads_per_unit,
    "delivered_share": _delivered_share,
    "delay_p50_us": _scaled(lambda load: load.delay_p50_s, MICROSECONDS),
    "delay_p99_us": _scaled(lambda load: load.delay_p99_s, MICROSECONDS),
    "first_byte_us": _scaled(lambda load: load.first_byte_s, MICROSECONDS),
    "streams": _scaled(lambda load: load.streams, 1),
    "lost": _scaled(lambda load: load.lost, 1),
    "wrong": _scaled(lambda load: load.wrong, 1),
    "refused": _scaled(lambda load: load.refused, 1),
    "before_mib": _scaled(lambda load: load.before_bytes, 1 / MIB),
    "after_mib": _scaled(lambda load: load.after_bytes, 1 / MIB),
    "peak_mib": _scaled(lambda load: load.peak_bytes, 1 / MIB),
    "kib_per_stream": _kib_per_stream,
    "grew_mib": _grew_mib,
    "harness_share": _scaled(lambda load: load.harness_cpu_s / load.window_s, 1),
    "others_share": _scaled(lambda load: load.others_cpu_s / load.window_s, 1),
}
# What is worth seeing less `direct`: the harness has a part in all of them.
ADDED = ("delay_p50_us", "delay_p99_us", "first_byte_us")

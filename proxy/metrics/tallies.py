"""Counters and histograms as plain numbers, made into Prometheus' families when somebody scrapes.

Counting is one look into a dict, or none for who keeps a cell: prometheus_client's own counters take a lock each, and
find a child by its labels first. There are no locks here: whoever counts and whoever scrapes runs on the loop's thread.
Which families there are is in counting.py; what is read at a scrape is in gauges.py.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

# The values of a family's labels, in their order; empty where it has none.
Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Family:
    """What one metric family is: its whole name, its Prometheus type, what it means, and what each label may say."""

    name: str
    kind: str
    text: str
    labels: dict[str, tuple[str, ...]]


class Counter:
    """One family of counters. A child is told once it has counted something."""

    __slots__ = ("_cells", "_family")

    def __init__(self, family: Family) -> None:
        self._family = family
        self._cells: defaultdict[Labels, list[int]] = defaultdict(_zero)

    def cell(self, labels: Labels) -> list[int]:
        """Where one child counts, as the only item: who keeps it counts with `cell[0] += 1`."""
        return self._cells[labels]

    def add(self, labels: Labels, amount: int = 1) -> None:
        """Count `amount` more under the values of the labels."""
        self._cells[labels][0] += amount

    def counted(self) -> Iterator[tuple[Labels, int]]:
        """Every child that has a cell, with its count."""
        for labels, (count,) in self._cells.items():
            yield labels, count

    def collect(self) -> Metric:
        """The counts of one scrape."""
        family = CounterMetricFamily(self._family.name, self._family.text, labels=tuple(self._family.labels))
        for labels, (count,) in self._cells.items():
            if count:
                family.add_metric(labels, count)
        return family


class Histogram:
    """One family of histograms. A child is told once it has observed something, the only one of a family without
    labels from the beginning."""

    __slots__ = ("_bounds", "_cells", "_family")

    def __init__(self, family: Family, bounds: tuple[float, ...]) -> None:
        self._family = family
        self._bounds = bounds
        self._cells: defaultdict[Labels, list[float]] = defaultdict(self._empty)
        if not family.labels:
            self._cells[()] = self._empty()

    def cell(self, labels: Labels = ()) -> list[float]:
        """Where one child observes: how many fell into each bucket alone, the one without end last, and behind them the
        sum. A value belongs into the first bucket whose bound is not below it, where `bisect_left` finds it."""
        return self._cells[labels]

    def observed(self, labels: Labels) -> tuple[float, int]:
        """The sum of what one child has observed, and how many those were."""
        cell = self._cells.get(labels)
        return (0.0, 0) if cell is None else (cell[-1], int(sum(cell[:-1])))

    def collect(self) -> Metric:
        """The buckets of one scrape, each with all that are below it."""
        family = HistogramMetricFamily(self._family.name, self._family.text, labels=tuple(self._family.labels))
        bounds = [floatToGoString(bound) for bound in (*self._bounds, float("inf"))]  # type: ignore[no-untyped-call]
        for labels, (*counts, total) in self._cells.items():
            if any(counts) or not labels:
                family.add_metric(labels, list(zip(bounds, accumulate(counts), strict=True)), total)
        return family

    def _empty(self) -> list[float]:
        return [0] * (len(self._bounds) + 1) + [0.0]


def _zero() -> list[int]:
    return [0]


class Tallies(Collector):
    """The counters and histograms of one proxy, in the order in which they are told."""

    def __init__(self) -> None:
        self.families: list[Family] = []
        self._tallies: list[Counter | Histogram] = []

    def counter(self, name: str, text: str, **labels: tuple[str, ...]) -> Counter:
        """A new family `crossover_<name>_total`, with what each label may say."""
        self.families.append(Family(f"crossover_{name}_total", "counter", text, labels))
        counter = Counter(self.families[-1])
        self._tallies.append(counter)
        return counter

    def histogram(self, name: str, text: str, bounds: tuple[float, ...], **labels: tuple[str, ...]) -> Histogram:
        """A new family `crossover_<name>_seconds` with buckets up to each of `bounds`, which rise."""
        self.families.append(Family(f"crossover_{name}_seconds", "histogram", text, labels))
        histogram = Histogram(self.families[-1], bounds)
        self._tallies.append(histogram)
        return histogram

    def describe(self) -> Iterable[Metric]:
        """Nothing: the registry need not know the names before families are made."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Every family as it stands."""
        for each in self._tallies:
            yield each.collect()

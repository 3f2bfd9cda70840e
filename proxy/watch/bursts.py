"""Requests that are refused or fail, told in the journal once a burst: when it begins, and its count at its end.

Single ones are in the log and in the metrics. What a client did wrong is no burst of ours and is told in neither.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from proxy.errors import CrossoverError, Side
from proxy.metrics import Totals
from proxy.telling.figures import count, seconds
from proxy.watch.journal import Entry, Number

# A burst is over when so long none has come: clients that were refused come back within it, and are the same burst.
QUIET_S = 15.0
# Codes that one sentence names; a sixth one is noise.
MAX_NAMED = 5
# What is said when one begins and when it is over.
_REFUSED = (
    "Requests begin to be refused: {count} so far ({codes})",
    "No more requests are refused: it was {count} within {lasted} ({codes})",
)
_FAILED = (
    "Requests begin to fail: {count} so far ({codes})",
    "No more requests fail: it was {count} within {lasted} ({codes})",
)


class Bursts:
    """The bursts of one proxy. Looks are told in their order."""

    def __init__(self, totals: Totals) -> None:
        self._refused = _Burst("refusals", *_REFUSED)
        self._failed = _Burst("failures", *_FAILED)
        self._before = totals

    def look(self, totals: Totals, at_s: float) -> Iterator[Entry]:
        """What is to be told of what has come since the last look."""
        before, self._before = self._before, totals
        broken = totals.broken - before.broken
        yield from self._refused.add(_since(totals.refused_by, before.refused_by), 0, at_s)
        yield from self._failed.add(_since(totals.failed_by, before.failed_by), broken, at_s)


class _Burst:
    """One kind of them: what it is called, and its sentences."""

    def __init__(self, kind: str, begins: str, ends: str) -> None:
        self._kind = kind
        self._begins, self._ends = begins, ends
        self._counts = Counter[str]()
        self._broken = 0
        self._from_s = self._last_s = 0.0

    def add(self, counts: Counter[str], broken: int, at_s: float) -> Iterator[Entry]:
        if counts:
            fresh = not self._counts
            self._counts += counts
            self._broken += broken
            self._last_s = at_s
            if fresh:
                self._from_s = at_s
                yield self._entry(self._kind, self._begins, at_s)
        elif self._counts and at_s - self._last_s >= QUIET_S:
            yield self._entry(f"{self._kind}_over", self._ends, at_s)
            self._counts, self._broken = Counter(), 0

    def _entry(self, kind: str, form: str, at_s: float) -> Entry:
        lasted_s = max(1.0, self._last_s - self._from_s)
        numbers: dict[str, Number] = {"count": self._counts.total(), "lasted_s": round(lasted_s, 1), **self._counts}
        return Entry(at_s, kind, None, _told(form, self._counts, self._broken, lasted_s), numbers)


def _told(form: str, counts: Counter[str], broken: int, lasted_s: float) -> str:
    named = [f"{code} {number:,}" for code, number in counts.most_common(MAX_NAMED)]
    codes = ", ".join(named) if len(counts) > 1 else next(iter(counts), "")
    told = form.format(count=count(counts.total(), "request"), codes=codes, lasted=seconds(lasted_s))
    return f"{told}, {broken:,} of them in the midst of the answer." if broken else f"{told}."


def _since(now: Mapping[str, int], before: Mapping[str, int]) -> Counter[str]:
    """What has come since, without what clients did wrong."""
    return Counter({code: more for code in now.keys() - _CLIENTS if (more := now[code] - before.get(code, 0)) > 0})


def _by_clients(kind: type[CrossoverError] = CrossoverError) -> Iterator[str]:
    if kind.side is Side.CLIENT:
        yield kind.code
    for each in kind.__subclasses__():
        yield from _by_clients(each)


_CLIENTS = frozenset(_by_clients())

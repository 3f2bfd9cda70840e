"""All ways through the traffic, on one core or several, and the search for the best number of those that have one.

The traffic goes to each worker once. What comes out is times request by request; what they mean is in noise.py.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple

from proxy.lab.replay.candidates import SEARCHED, Candidate, Ground, closer, numbers
from proxy.lab.replay.rerun import Rerun, Times
from proxy.lab.replay.traffic import Traffic, pieces
from proxy.model import SPECULATIVE

# The numbers of a rule are tried on so many requests at most, from a few stretches of a longer log: their differences
# show on that, and the one found is run on all.
SAMPLE, STRETCHES = 12_000, 6
# Few numbers are tried at any rate: a slower way than the present one has more in flight.
_LEAST_PEAK = 8
# Between two stretches nothing comes for so long that the engines run empty.
_GAP_S = 3600.0


class Run(NamedTuple):
    """A candidate and what it came to."""

    candidate: Candidate
    times: Times


Tell = Callable[[int, int], None]


class Crew:
    """Who runs ways by their names. `tell` is told how many have run of how many that are known."""

    def __init__(self, ground: Ground, traffic: Traffic, pool: ProcessPoolExecutor | None, tell: Tell) -> None:
        self.ground = ground
        self._whole, self._sample = traffic, pieces(traffic, SAMPLE, STRETCHES, _GAP_S)
        self._pool = pool
        self._tell = tell
        self._done = self._known = 0

    def runs(self, names: Sequence[str]) -> list[Run]:
        """All of the traffic, for each."""
        candidates = [self.ground.candidate(name) for name in names]
        return [Run(one, times) for one, times in zip(candidates, self._map(names, sample=False), strict=True)]

    def means(self, names: Sequence[str]) -> list[float]:
        """The mean time of a request of the sample, for each."""
        counted = self._sample.counted
        return [mean_of(times, counted) for times in self._map(names, sample=True)]

    def rerun(self, name: str, *, sample: bool) -> Times:
        """Run one in this process."""
        candidate = self.ground.candidate(name)
        return Rerun(candidate.arm, candidate.bounds, self._sample if sample else self._whole).run()

    def _map(self, names: Sequence[str], *, sample: bool) -> Iterator[Times]:
        self._known += len(names)
        if self._pool is None:
            found: Iterable[Times] = (self.rerun(name, sample=sample) for name in names)
        else:
            found = self._pool.map(_in_worker, names, [sample] * len(names))
        for times in found:
            self._done += 1
            self._tell(self._done, self._known)
            yield times


@contextmanager
def crew(ground: Ground, traffic: Traffic, jobs: int, tell: Tell) -> Iterator[Crew]:
    """A crew of so many processes; of one, this process itself."""
    if jobs == 1:
        yield Crew(ground, traffic, None, tell)
        return
    with ProcessPoolExecutor(jobs, initializer=_take, initargs=(ground, traffic)) as pool:
        yield Crew(ground, traffic, pool, tell)


def mean_of(times: Times, counted: Sequence[int]) -> float:
    """The mean time of those that count."""
    return sum(times.e2e_s[place] for place in counted) / len(counted)


def with_numbers(names: Iterable[str], staff: Crew, peak: int) -> list[str]:
    """The same names, once each; those of SEARCHED without a number with the one that is best on the sample. `peak` is
    the most that was in flight at once: where a rule is far from ever reached, other numbers give the same."""
    most = min(staff.ground.engines.limits[SPECULATIVE], max(_LEAST_PEAK, 2 * peak))
    found = [_with_number(name, staff, most) if name in SEARCHED else name for name in names]
    return list(dict.fromkeys(found))


def _with_number(name: str, staff: Crew, most: int) -> str:
    means = dict[int, float]()
    for tried in (numbers, closer):
        asked = tried(most, means)
        means |= zip(asked, staff.means([f"{name}:{number}" for number in asked]), strict=True)
    return f"{name}:{min(means, key=means.__getitem__)}"


# The crew of this process, where it is one of several.
_own: list[Crew] = []


def _take(ground: Ground, traffic: Traffic) -> None:
    _own.append(Crew(ground, traffic, None, lambda *_: None))


def _in_worker(name: str, sample: bool) -> Times:
    return _own[-1].rerun(name, sample=sample)

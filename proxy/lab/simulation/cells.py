"""One cell of a comparison: curve, placement, load and kind of traffic, and every way run on the same requests."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import nan
from typing import NamedTuple

from proxy.lab.engine import KV_TOKENS
from proxy.lab.simulation.arms import Arm, Bench, arm
from proxy.lab.simulation.arrivals import Arrivals, Source
from proxy.lab.simulation.clairvoyant import clairvoyants
from proxy.lab.simulation.course import Course
from proxy.lab.simulation.fates import Dispersion, Fated
from proxy.lab.simulation.goals import Slo
from proxy.lab.simulation.levels import over_levels
from proxy.lab.simulation.oracles import MAX_EDGE, alone, fixed, optimum, works
from proxy.lab.simulation.pace import capacity, longest
from proxy.lab.simulation.sharing import Bounds
from proxy.lab.simulation.tally import UNKNOWN, Overload, Span, Tally, mean, regret, shortfall, span, tally
from proxy.lab.simulation.trial import Trial
from proxy.model import ROLES

# Before any request counts, a tenth of them lets the engines fill, and this much time lets a policy with a memory find
# its regime: three dwells of the slowest.
WARM_SHARE, WARM_S = 0.1, 180.0

# Fixed rules are first tried on so many seeds, and the best few of them on all.
_SIEVE_SEEDS, _SIEVE_KEPT = 2, 3

ORACLES = ("o1", "o2", "o3")
_SLO, _QUIET = Slo(), Course()


@dataclass(frozen=True, slots=True)
class Conduct:
    """How each run is made: requests that count, seeds from 1 on, what is good, which oracles are asked, and what
    happens meanwhile."""

    requests: int = 4000
    seeds: int = 10
    slo: Slo = _SLO
    oracles: tuple[str, ...] = ORACLES
    course: Course = _QUIET


@dataclass(frozen=True, slots=True)
class Cell:
    """`load` is the share of what both engines can take at most (of the better one on shared GPUs), prefill included;
    None for traffic that answers set the pace of."""

    bench: Bench
    load: float | None
    arrivals: Arrivals


class Held(NamedTuple):
    """An oracle's result: which way it was, and each seed's run; `goodput` are each seed's runs of that of its ways
    which kept the goals most often."""

    name: str
    runs: Sequence[Tally]
    mean_e2e_s: float
    goodput: Sequence[Tally]


@dataclass(frozen=True, slots=True)
class Row:
    """One way in one cell; `control` says that nobody asked for it. Oracles that were not asked, or know nothing of the
    cell, are missing from the mappings. One with an `overload` has no numbers (NaN) and no regret."""

    curve: str
    placement: str
    policy: str
    load: float | None
    arrivals: str
    rate_per_s: float | None
    seeds: int
    requests: int
    mean_e2e_s: Span
    tally: Tally
    oracle: Mapping[str, Held]
    regret: Mapping[str, Span]
    regret_p99: Mapping[str, Span]
    regret_goodput: Mapping[str, Span]
    foretold_s: float | None
    course: tuple[str, ...] = ()
    control: bool = False
    overload: Overload | None = None


def compare(cell: Cell, said: Sequence[str], conduct: Conduct, controls: Sequence[str] = ()) -> tuple[list[Row], int]:
    """A row for each way named, `controls` behind the others, and the number of requests that were simulated. Raises
    `ConfigError` for a name that means nothing."""
    named = dict.fromkeys((*said, *controls))
    runs = _Runs(cell, conduct)
    arms = runs.arms(lambda bench: [arm(name, bench) for name in named])
    oracles = {name: held for name in conduct.oracles if (held := runs.oracle(name)) is not None}
    return [_row(cell, one, runs, oracles, control=one.name not in said) for one in arms], runs.simulated


class _Runs:
    """All runs of a cell; each way and seed is run once."""

    def __init__(self, cell: Cell, conduct: Conduct) -> None:
        bench = cell.bench
        self.conduct = conduct
        self.simulated = 0
        self.foretold_s: float | None = None
        self._cell = cell
        self._asked = works(bench, cell.arrivals.means)
        self.rate_per_s = (cell.load or 0.0) * capacity(bench.paces, bench.placement, self._asked)
        prefill = bench.curve.prefill_tokens_per_s
        self._bounds = {role: Bounds(bench.max_in_flight, KV_TOKENS[role], prefill) for role in ROLES}
        self._known: dict[tuple[str, int], Tally | Overload] = {}
        self._dispersion: Dispersion | None = None
        if conduct.course.dispersion:
            curve = bench.curve
            self._dispersion = Dispersion(curve.tokens_per_step, longest(curve), conduct.course.dispersion)

    def arms(self, make: Callable[[Bench], Iterable[Arm]]) -> list[Arm]:
        """Arms made for the bench as it is measured, with what they are where acceptance changes."""
        return over_levels(self._cell.bench, self.conduct.course.shifts.distinct, make)

    def of(self, one: Arm, seeds: int | None = None) -> list[Tally] | Overload:
        """The runs of one way, one for each seed; or the first that had to be given up, behind which none is run."""
        found: list[Tally] = []
        for seed in range(1, (seeds or self.conduct.seeds) + 1):
            ran = self._run(one, seed)
            if isinstance(ran, Overload):
                return ran
            found.append(ran)
        return found

    def oracle(self, name: str) -> Held | None:
        """What one oracle reaches on the same requests; None where it knows nothing of such traffic."""
        bench, course = self._cell.bench, self.conduct.course
        if name == "o2":
            return self._best([*self.arms(clairvoyants), *self.arms(alone)])
        if name == "o3":
            return self._best(*self._sieved())
        if not self._cell.arrivals.paced or course.shifts.levels or course.losses:
            return None  # it is the optimum of what goes on as it is
        found = optimum(bench, self.rate_per_s, self._asked)
        if found.edge > MAX_EDGE:
            return None
        self.foretold_s = found.response_s
        return self._best((found.arm,))

    def _carried(self, arms: Sequence[Arm], seeds: int | None = None) -> list[tuple[Arm, list[Tally]]]:
        """The runs of each, without those to which more came than they carry."""
        return [(one, runs) for one in arms if not isinstance(runs := self.of(one, seeds), Overload)]

    def _best(self, arms: Sequence[Arm], more: Sequence[Arm] = ()) -> Held | None:
        """The fastest of `arms`, with what keeps the goals most often of these and `more`; None where none of them
        carries what comes."""
        ran = [(one.name, runs) for one, runs in self._carried(arms)]
        if not ran:
            return None
        good = [*(runs for _, runs in ran), *(runs for _, runs in self._carried(more))]
        goodput = max(good, key=lambda runs: mean(runs).goodput)
        held = [Held(name, runs, mean(runs).mean_e2e_s, goodput) for name, runs in ran]
        return min(held, key=lambda one: one.mean_e2e_s)

    def _sieved(self) -> tuple[Sequence[Arm], Sequence[Arm]]:
        """The fixed rules that were the fastest on a few seeds, and the one that kept the goals most often there."""
        tried = self._carried(self.arms(fixed), min(_SIEVE_SEEDS, self.conduct.seeds))
        first = {one.name: mean(runs) for one, runs in tried}
        kept = sorted((one for one, _ in tried), key=lambda one: first[one.name].mean_e2e_s)
        return kept[:_SIEVE_KEPT], sorted(kept, key=lambda one: -first[one.name].goodput)[:1]

    def _run(self, one: Arm, seed: int) -> Tally | Overload:
        known = self._known.get((one.name, seed))
        if known is None:
            trial = Trial(one, self._bounds, self._source(seed), self.conduct.course)
            warm = round(max(WARM_SHARE * self.conduct.requests, WARM_S * self.rate_per_s))
            times = trial.run(warm, warm + self.conduct.requests, self.rate_per_s)
            known = (
                Overload(seed, times.span_s, times.left_waiting)
                if times.left_waiting
                else tally(times, self.conduct.slo)
            )
            self._known[one.name, seed] = known
            self.simulated += times.offered
        return known

    def _source(self, seed: int) -> Source:
        source, course = self._cell.arrivals.source(self.rate_per_s, seed), self.conduct.course
        if not course.aborts and self._dispersion is None:
            return source
        return Fated(source, seed, course.aborts, self._dispersion)


def _row(cell: Cell, one: Arm, runs: _Runs, oracles: Mapping[str, Held], *, control: bool) -> Row:
    ran = runs.of(one)
    overload = ran if isinstance(ran, Overload) else None
    tallies = [UNKNOWN] if isinstance(ran, Overload) else ran
    against = oracles if overload is None else {}
    times = [each.mean_e2e_s for each in tallies]
    worst = [each.p99_e2e_s for each in tallies]
    good = [each.goodput for each in tallies]
    return Row(
        curve=cell.bench.curve.name,
        placement=cell.bench.placement.value,
        policy=one.name,
        load=cell.load,
        arrivals=cell.arrivals.name,
        rate_per_s=runs.rate_per_s if cell.load is not None else None,
        seeds=runs.conduct.seeds,
        requests=runs.conduct.requests,
        mean_e2e_s=span(times) if overload is None else Span(nan, None, None),
        tally=mean(tallies),
        oracle=oracles,
        regret={name: regret(times, [run.mean_e2e_s for run in held.runs]) for name, held in against.items()},
        regret_p99={name: regret(worst, [run.p99_e2e_s for run in held.runs]) for name, held in against.items()},
        regret_goodput={name: shortfall(good, [run.goodput for run in held.goodput]) for name, held in against.items()},
        foretold_s=runs.foretold_s,
        course=runs.conduct.course.said,
        control=control,
        overload=overload,
    )

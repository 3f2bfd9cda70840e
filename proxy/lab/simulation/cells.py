"""One cell of a comparison: curve, placement, load and kind of traffic, and every way run on the same requests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from proxy.lab.engine import KV_TOKENS
from proxy.lab.simulation.arms import Arm, Bench, arm
from proxy.lab.simulation.arrivals import Arrivals
from proxy.lab.simulation.clairvoyant import clairvoyants
from proxy.lab.simulation.course import Course
from proxy.lab.simulation.oracles import MAX_EDGE, fixed, optimum, works
from proxy.lab.simulation.pace import capacity
from proxy.lab.simulation.sharing import Bounds
from proxy.lab.simulation.tally import Slo, Span, Tally, mean, regret, span, tally
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
    None for traffic that has its own pace."""

    bench: Bench
    load: float | None
    arrivals: Arrivals


class Held(NamedTuple):
    """An oracle's result: which way it was, and each seed's run."""

    name: str
    runs: Sequence[Tally]
    mean_e2e_s: float


@dataclass(frozen=True, slots=True)
class Row:
    """One way in one cell. Oracles that were not asked, or know nothing of the cell, are missing from the mappings."""

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
    foretold_s: float | None


def compare(cell: Cell, said: Sequence[str], conduct: Conduct) -> tuple[list[Row], int]:
    """A row for each way named, and the number of requests that were simulated. Raises `ConfigError` for a name that
    means nothing."""
    arms = [arm(name, cell.bench) for name in said]
    runs = _Runs(cell, conduct)
    oracles = {name: held for name in conduct.oracles if (held := runs.oracle(name)) is not None}
    return [_row(cell, one, runs, oracles) for one in arms], runs.simulated


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
        self._known: dict[tuple[str, int], Tally] = {}

    def of(self, one: Arm, seeds: int | None = None) -> list[Tally]:
        """The runs of one way, one for each seed."""
        return [self._run(one, seed) for seed in range(1, (seeds or self.conduct.seeds) + 1)]

    def oracle(self, name: str) -> Held | None:
        """What one oracle reaches on the same requests; None where it knows nothing of such traffic."""
        bench = self._cell.bench
        if name == "o2":
            return self._best(clairvoyants(bench))
        if name == "o3":
            return self._best(self._sieved())
        if not self._cell.arrivals.paced:
            return None
        found = optimum(bench, self.rate_per_s, self._asked)
        if found.edge > MAX_EDGE:
            return None
        self.foretold_s = found.response_s
        return self._best((found.arm,))

    def _best(self, arms: Sequence[Arm]) -> Held:
        held = [Held(one.name, runs, mean(runs).mean_e2e_s) for one in arms for runs in (self.of(one),)]
        return min(held, key=lambda one: one.mean_e2e_s)

    def _sieved(self) -> Sequence[Arm]:
        tried = list(fixed(self._cell.bench))
        tried.sort(key=lambda one: mean(self.of(one, min(_SIEVE_SEEDS, self.conduct.seeds))).mean_e2e_s)
        return tried[:_SIEVE_KEPT]

    def _run(self, one: Arm, seed: int) -> Tally:
        known = self._known.get((one.name, seed))
        if known is None:
            source = self._cell.arrivals.source(self.rate_per_s, seed)
            trial = Trial(one, self._bounds, source, self.conduct.course)
            warm = round(max(WARM_SHARE * self.conduct.requests, WARM_S * self.rate_per_s))
            known = tally(trial.run(warm, warm + self.conduct.requests), self.conduct.slo)
            self._known[one.name, seed] = known
            self.simulated += trial.times.offered
        return known


def _row(cell: Cell, one: Arm, runs: _Runs, oracles: Mapping[str, Held]) -> Row:
    tallies = runs.of(one)
    times = [each.mean_e2e_s for each in tallies]
    worst = [each.p99_e2e_s for each in tallies]
    return Row(
        curve=cell.bench.curve.name,
        placement=cell.bench.placement.value,
        policy=one.name,
        load=cell.load,
        arrivals=cell.arrivals.name,
        rate_per_s=runs.rate_per_s if cell.arrivals.paced else None,
        seeds=runs.conduct.seeds,
        requests=runs.conduct.requests,
        mean_e2e_s=span(times),
        tally=mean(tallies),
        oracle=oracles,
        regret={name: regret(times, [run.mean_e2e_s for run in held.runs]) for name, held in oracles.items()},
        regret_p99={name: regret(worst, [run.p99_e2e_s for run in held.runs]) for name, held in oracles.items()},
        foretold_s=runs.foretold_s,
    )

"""One contest: some ways of routing on the same requests of one seed, through the proxy's own desk."""

from dataclasses import dataclass
from typing import NamedTuple

from simulate.alternating import Alternating
from simulate.exact import bench_of

from proxy.lab.simulation.arrivals import Arrivals, Gamma, Means, Source
from proxy.lab.simulation.cells import Cell, Conduct, compare
from proxy.lab.simulation.oracles import works
from proxy.lab.simulation.pace import capacity
from proxy.model import Placement

# In traffic that comes and goes.
MOST_REQUESTS = 10_000

STATIC = ("only_speculative", "only_baseline")
CONTROLS = ("first", "faster", "adaptive", "two_baselines")


class Contest(NamedTuple):
    """Where and what: a curve, a placement, a load, a kind of traffic by its name, and a seed. `whole` asks for every
    control arm and for the oracle that knows all lengths."""

    curve: str
    placement: str
    load: float
    traffic: str
    seed: int
    whole: bool = False


class Score(NamedTuple):
    """Mean seconds by way, the clairvoyant's as `o2`; changes of regime of the policy; and virtual seconds."""

    mean_s: dict[str, float]
    switches: float
    lasted_s: float


@dataclass(frozen=True, slots=True)
class _Seeded:
    """The same traffic, from another seed on."""

    kind: Arrivals
    seed: int
    paced = True

    @property
    def name(self) -> str:
        return self.kind.name

    @property
    def means(self) -> Means:
        return self.kind.means

    def source(self, rate_per_s: float, _seed: int) -> Source:
        return self.kind.source(rate_per_s, self.seed)


def traffic(name: str) -> Arrivals:
    """`poisson`, `gamma:3` or `alternating:60`, a tenth of capacity and seven tenths in turn for so many seconds."""
    kind, _, value = name.partition(":")
    if kind == "alternating":
        return Alternating(0.1, 0.7, float(value))
    return Gamma(float(value) if kind == "gamma" else 1.0)


def policy_of(placement: str) -> str:
    """What `auto` is there."""
    return "marginal" if placement == Placement.SEPARATE else "consolidate"


def held(contest: Contest, requests: int) -> Score:
    """Run it."""
    bench = bench_of(contest.curve, Placement(contest.placement))
    said = [policy_of(contest.placement), *STATIC, *(CONTROLS if contest.whole else ())]
    kind = traffic(contest.traffic)
    if isinstance(kind, Alternating):  # two turns at least, as far as that is not too much to run
        lasts_s = max(4.0 * kind.every_s, 600.0)
        asked = works(bench, kind.means)
        rate_per_s = contest.load * capacity(bench.paces, bench.placement, asked)
        requests = max(requests, min(round(lasts_s * rate_per_s), MOST_REQUESTS))
    conduct = Conduct(requests, 1, oracles=("o2",) if contest.whole else ())
    rows, _ = compare(Cell(bench, contest.load, _Seeded(kind, contest.seed)), said, conduct)
    means = {row.policy: row.tally.mean_e2e_s for row in rows}
    if contest.whole:
        means["o2"] = rows[0].oracle["o2"].mean_e2e_s
    rate_per_s = rows[0].rate_per_s
    assert rate_per_s is not None
    return Score(means, rows[0].tally.switches, requests / rate_per_s)

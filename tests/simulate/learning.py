"""Runs of the desk that learns, beside the same policy by the true curves, on the same requests.

What is believed at first and what changes meanwhile is given here, what engines tell in tellings.py. Sums of many runs
are in prove_learning.py.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from random import Random
from statistics import fmean
from typing import Any

from simulate.tellings import Clock, EveryStep, Telling, Wander, plainly

from proxy.config.key_files import Sources
from proxy.lab.curves import find
from proxy.lab.engine import KV_TOKENS
from proxy.lab.simulation.arms import Arm, Bench, measured, settings_of
from proxy.lab.simulation.arrivals import Gamma
from proxy.lab.simulation.course import Course, Loss
from proxy.lab.simulation.oracles import works
from proxy.lab.simulation.pace import Pace, capacity, paces
from proxy.lab.simulation.sharing import Bounds
from proxy.lab.simulation.trial import Trial
from proxy.model import ROLES, SPECULATIVE, EngineLoad, Placement, Policy, RequestFacts, Role, Usage
from proxy.routing.curves import ContextCurves, Curves, SpeedCurve, SpeedPoint
from proxy.state.backend import Backend

MOST_IN_FLIGHT = 128
TRAFFIC = Gamma(1.0)

Prior = Callable[[Curves], Curves]


# ---------------------------------------------------------------- what is believed at first


def right(curves: Curves) -> Curves:
    """What is true."""
    return curves


def flat(curves: Curves) -> Curves:
    """Both like the baseline."""
    return _each(curves, lambda context: replace(context, speculative=context.baseline))


def swapped(curves: Curves) -> Curves:
    """Each like the other."""
    return _each(curves, lambda each: replace(each, speculative=each.baseline, baseline=each.speculative))


@dataclass(frozen=True, slots=True)
class Scaled:
    """One of them wrong by a factor everywhere."""

    by: float
    role: Role = SPECULATIVE

    def __call__(self, curves: Curves) -> Curves:
        return _each(curves, self._of)

    def _of(self, context: ContextCurves) -> ContextCurves:
        curve = context.of(self.role)
        assert curve is not None
        wrong = SpeedCurve(tuple(SpeedPoint(point.in_flight, self.by * point.tok_s) for point in curve.points))
        return replace(context, **{self.role.value: wrong})


@dataclass(frozen=True, slots=True)
class Like:
    """The speeds of another machine."""

    name: str

    def __call__(self, curves: Curves) -> Curves:
        return replace(measured(bench_of(self.name, Placement.SEPARATE)), placement=curves.placement)


def _each(curves: Curves, change: Callable[[ContextCurves], ContextCurves]) -> Curves:
    return replace(curves, contexts=tuple(map(change, curves.contexts)))


# ---------------------------------------------------------------- one run


@dataclass(frozen=True, slots=True)
class Study:
    """What is run. `load` is the share of what both engines can take; `rate_per_s` says it directly. From `change_s` on
    the speculative engine accepts `accepts` times as much. `noise` scatters the steps of each look; without `usage`
    answers tell no tokens. `steps` is how engines count theirs; some are lost for a while (`losses`)."""

    curve: str
    load: float = 0.5
    prior: Prior = right
    telling: Telling = plainly
    placement: Placement = Placement.SEPARATE
    rate_per_s: float | None = None
    change_s: float | None = None
    accepts: float = 1.0
    usage: bool = True
    noise: float = 0.0
    steps: Callable[[Clock], EveryStep] = EveryStep
    losses: tuple[Loss, ...] = ()


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of a run: how long each request lasted, in the order in which they came, and counts since the start."""

    lasted_s: tuple[float, ...]
    probes: int
    requests: int
    suspended: int
    switches: int

    def mean_s(self, first: int, last: int) -> float:
        """The mean of those from `first` on and before `last`."""
        return fmean(self.lasted_s[first:last])


class LearningTrial(Trial):
    """A trial whose engines tell what the study says. `later` are the true curves after the change, for who knows."""

    def __init__(self, study: Study, arm: Arm, seed: int, later: Curves | None) -> None:
        self._study, self._chance, self._later = study, Random(seed), later
        self._wander = {role: Wander(study.noise, Random(seed + 1)) for role in ROLES}
        self.lasted_s: dict[int, float] = {}
        self._to_desk: Callable[[Backend, EngineLoad], None] | None = None
        bench = bench_of(study.curve, study.placement)
        prefill = bench.curve.prefill_tokens_per_s
        bounds = {role: Bounds(MOST_IN_FLIGHT, KV_TOKENS[role], prefill) for role in ROLES}
        super().__init__(arm, bounds, TRAFFIC.source(rate_of(study), seed), Course(polled=True, losses=study.losses))
        for role in ROLES:
            self.stations[role].moments = study.steps(partial(getattr, self.gpus[role], "now_s"))
        self._to_desk, self.desk.observe_load = self.desk.observe_load, self._tell  # type: ignore[method-assign]
        self._to_learner, self.desk.heard = self.desk.heard, self._hear  # type: ignore[method-assign]
        if study.change_s is not None:
            self.agenda.at(study.change_s, self._change)

    def _tell(self, backend: Backend, load: EngineLoad) -> None:
        assert self._to_desk is not None
        told = self._study.telling(backend.role, self._wander[backend.role].scattered(load), self._chance)
        if told is not None:
            self._to_desk(backend, told)

    def _change(self) -> None:
        station = self.stations[SPECULATIVE]
        station.pace = slower(station.pace, self._study.accepts)
        for role in ROLES:
            self.gpus[role].advance(self.now_s)
            self.gpus[role]._retime()
        if self._later is not None:
            self.desk.rules = replace(self.desk.rules, curves=self._later)

    def _count(self, ask: Any) -> None:
        super()._count(ask)
        self.lasted_s[ask.number] = ask.ended_at_s - ask.asked_at_s

    def _hear(self, facts: RequestFacts) -> None:
        self._to_learner(facts if self._study.usage else facts._replace(usage=Usage(), tpot_s=None))


def slower(pace: Pace, accepts: float) -> Pace:
    """The same steps with so many times the tokens."""
    return Pace(pace.step_s, tuple(accepts * each for each in pace.tokens), pace.surplus_tokens)


@cache
def bench_of(name: str, placement: Placement) -> Bench:
    """The bench of a curve."""
    curve = find(name)
    return Bench(curve, placement, paces(curve, MOST_IN_FLIGHT, TRAFFIC.means.context), MOST_IN_FLIGHT)


def rate_of(study: Study) -> float:
    """Requests a second."""
    if study.rate_per_s is not None:
        return study.rate_per_s
    bench = bench_of(study.curve, study.placement)
    return study.load * capacity(bench.paces, bench.placement, works(bench, TRAFFIC.means))


def arm_of(study: Study, *, learns: bool, knows: bool = False) -> Arm:
    """The policy of the placement by what the study believes, or by what is true where it `knows`."""
    bench = bench_of(study.curve, study.placement)
    policy = Policy.MARGINAL if study.placement is Placement.SEPARATE else Policy.CONSOLIDATE
    settings = settings_of(bench, policy)
    learn = settings.routing.learn.model_copy(update={"enabled": learns})
    settings = settings.model_copy(update={"routing": settings.routing.model_copy(update={"learn": learn})})
    curves = measured(bench) if knows else study.prior(measured(bench))
    return Arm(policy.value, settings.read_from(Sources({}, curves=curves)), bench.paces)


def trial_of(study: Study, seed: int, *, learns: bool = True, knows: bool = False) -> LearningTrial:
    """A trial to run."""
    bench, later = bench_of(study.curve, study.placement), None
    if knows and study.change_s is not None:
        changed = {**bench.paces, SPECULATIVE: slower(bench.paces[SPECULATIVE], study.accepts)}
        later = measured(replace(bench, paces=changed))
    return LearningTrial(study, arm_of(study, learns=learns, knows=knows), seed, later)


def ran(study: Study, seed: int, last: int, *, learns: bool = True, knows: bool = False) -> Ran:
    """Run so many requests."""
    trial = trial_of(study, seed, learns=learns, knows=knows)
    switches = trial.run(0, last).switches
    lasted_s = tuple(trial.lasted_s[number] for number in range(last))
    learning = trial.desk.learning
    if learning is None:
        return Ran(lasted_s, 0, 0, 0, switches)
    probes, harm = learning.probes, learning.harm
    return Ran(lasted_s, probes.spent, probes.requests, harm.suspended, switches)


@dataclass(frozen=True, slots=True)
class Compared:
    """The policy that learns, the same that only believes, and the one that knows, on the same requests."""

    ours: Ran
    static: Ran
    known: Ran

    def regret(self, first: int, last: int) -> float:
        """By how much the one that learns is above the one that knows, as a share."""
        return self.ours.mean_s(first, last) / self.known.mean_s(first, last) - 1.0

    def unlearned(self, first: int, last: int) -> float:
        """The same of the one that only believes."""
        return self.static.mean_s(first, last) / self.known.mean_s(first, last) - 1.0

    def harm(self, first: int, last: int) -> float:
        """By how much the one that learns is above the one that only believes."""
        return self.ours.mean_s(first, last) / self.static.mean_s(first, last) - 1.0


def compared(study: Study, seed: int, last: int) -> Compared:
    """All three."""
    known = ran(study, seed, last, learns=False, knows=True)
    static = known if study.prior is right and study.change_s is None else ran(study, seed, last, learns=False)
    return Compared(ran(study, seed, last), static, known)

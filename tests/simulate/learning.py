"""Runs of the desk that learns, beside the same policy by the true curves, on the same requests.

What the policy believes at first, what engines tell and what changes meanwhile are given; sums are prove_learning.py's.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from math import exp, nan
from random import Random
from statistics import fmean

from proxy.config.key_files import Sources
from proxy.lab.curves import find
from proxy.lab.engine import KV_TOKENS
from proxy.lab.simulation.arms import Arm, Bench, measured, settings_of
from proxy.lab.simulation.arrivals import Gamma
from proxy.lab.simulation.course import Course
from proxy.lab.simulation.oracles import works
from proxy.lab.simulation.pace import Pace, capacity, paces
from proxy.lab.simulation.sharing import Bounds
from proxy.lab.simulation.trial import Trial
from proxy.model import (
    BASELINE,
    ROLES,
    SPECULATIVE,
    ChangeKind,
    EngineLoad,
    Placement,
    Policy,
    RequestFacts,
    Role,
    Usage,
)
from proxy.routing.curves import ContextCurves, Curves, SpeedCurve, SpeedPoint

MOST_IN_FLIGHT = 128
CONTEXT_TOKENS = 656.0

Prior = Callable[[Curves], Curves]
Telling = Callable[[Role, EngineLoad, float, Random], EngineLoad | None]


# ---------------------------------------------------------------- what is believed at first


def right(curves: Curves) -> Curves:
    """What is true."""
    return curves


def flat(curves: Curves) -> Curves:
    """Both like the baseline."""
    return _each(curves, lambda context: replace(context, speculative=context.baseline))


def scaled(by: float, role: Role = SPECULATIVE) -> Prior:
    """One of them wrong by a factor everywhere."""

    def of(context: ContextCurves) -> ContextCurves:
        curve = context.of(role)
        assert curve is not None
        wrong = SpeedCurve(tuple(SpeedPoint(point.in_flight, by * point.tok_s) for point in curve.points))
        return replace(context, **{role.value: wrong})

    return lambda curves: _each(curves, of)


def swapped(curves: Curves) -> Curves:
    """Each like the other."""
    return _each(curves, lambda each: replace(each, speculative=each.baseline, baseline=each.speculative))


def _each(curves: Curves, change: Callable[[ContextCurves], ContextCurves]) -> Curves:
    return replace(curves, contexts=tuple(map(change, curves.contexts)))


# ---------------------------------------------------------------- what engines tell


def moments(_role: Role, load: EngineLoad, _now_s: float, _chance: Random) -> EngineLoad:
    """Their decode moments, as they are."""
    return load


def noisy(_role: Role, load: EngineLoad, _now_s: float, chance: Random) -> EngineLoad | None:
    """Moments whose sums scatter, and a poll in ten that fails."""
    if chance.random() < 0.1 or load.moments is None:
        return None
    return load  # the scatter is in `Noise`, since sums only grow


def counters(_role: Role, load: EngineLoad, _now_s: float, _chance: Random) -> EngineLoad:
    """Generated tokens alone."""
    return replace(load, moments=None, generated=None if load.moments is None else load.moments[5])


def nothing(_role: Role, load: EngineLoad, _now_s: float, _chance: Random) -> EngineLoad:
    """Neither."""
    return replace(load, moments=None)


def lying(by: float, role: Role = SPECULATIVE) -> Telling:
    """One engine's steps seem to take so many times as long."""

    def tell(of: Role, load: EngineLoad, _now_s: float, _chance: Random) -> EngineLoad:
        if of is not role or load.moments is None:
            return load
        steps, batch, us, squares, busy_us, tokens = load.moments
        return replace(load, moments=(steps, batch, by * us, squares, by * busy_us, tokens))

    return tell


def broken(_role: Role, load: EngineLoad, now_s: float, chance: Random) -> EngineLoad:
    """Whatever a broken engine may tell: nothing, zeros, no numbers, counters begun anew, a clock that goes back."""
    told = load.moments or (0.0,) * 6
    wrong = chance.choice([told, None, (0.0,) * 6, (nan,) * 6, tuple(-each for each in told), told[:3], (1e18,) * 6])
    return replace(load, moments=wrong, at_s=now_s - chance.choice([0.0, 1e6]), ranks=chance.choice([0, 1, 1, 8]))


# ---------------------------------------------------------------- one run


@dataclass(frozen=True, slots=True)
class Study:
    """What is run. `load` is the share of what both engines can take; `rate_per_s` says it directly. From `change_s` on
    the speculative engine accepts `accepts` times as much."""

    curve: str
    load: float = 0.5
    prior: Prior = right
    telling: Telling = moments
    placement: Placement = Placement.SEPARATE
    rate_per_s: float | None = None
    change_s: float | None = None
    accepts: float = 1.0
    usage: bool = True
    noise: float = 0.0


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of a run: mean seconds of the requests that count, probes by all requests, suspensions, switches."""

    mean_s: float
    probes: int
    requests: int
    suspended: int
    switches: int
    e2e_s: tuple[float, ...] = field(repr=False)


class LearningTrial(Trial):
    """A trial whose engines tell what the study says."""

    def __init__(self, study: Study, arm: Arm, seed: int, true: Curves | None) -> None:
        self._study, self._chance = study, Random(seed)
        self._true = true
        self._wander = {role: [0.0] * 6 for role in ROLES}
        self.suspensions = 0
        self._bench = bench_of(study.curve, study.placement)
        bounds = {
            role: Bounds(MOST_IN_FLIGHT, KV_TOKENS[role], self._bench.curve.prefill_tokens_per_s) for role in ROLES
        }
        source = Gamma(1.0).source(rate_of(study), seed)
        super().__init__(arm, bounds, source, Course(polled=False))
        self._observe = self._desk.observe_load
        self._desk.observe_load = self._told  # type: ignore[method-assign,assignment]  # what is told is the study's
        for station in self.stations.values():
            from proxy.lab.simulation.moments import Moments

            station.moments = Moments()
        self._poll()
        if study.change_s is not None:
            self._agenda.at(study.change_s, self._change)

    def _told(self, backend: object, load: EngineLoad) -> None:
        role = next(each.role for each in self._desk.backends if each is backend)
        told = self._study.telling(role, self._noised(role, load), self.now_s, self._chance)
        if told is not None:
            self._observe(self._desk.backend(role), told)

    def _noised(self, role: Role, load: EngineLoad) -> EngineLoad:
        """Steps that took longer or shorter by chance: each look's own, so that sums go on growing."""
        if not self._study.noise or load.moments is None:
            return load
        before, wander = self._wander[role], []
        scatter = exp(self._chance.gauss(0.0, self._study.noise))
        last = getattr(self, "_last_" + role.value, (0.0,) * 6)
        for place, (old, new) in enumerate(zip(last, load.moments, strict=True)):
            wander.append(before[place] + (new - old) * (scatter if place in (2, 4) else 1.0))
        setattr(self, "_last_" + role.value, load.moments)
        self._wander[role] = wander
        return replace(load, moments=tuple(wander))

    def _change(self) -> None:
        pace = self.stations[SPECULATIVE].pace
        self.stations[SPECULATIVE].pace = slower(pace, self._study.accepts)
        for role in ROLES:
            self._gpus[role].advance(self.now_s)
            self._gpus[role]._retime()
        if self._true is not None:
            self._desk.rules = replace(self._desk.rules, curves=self._true)

    def _facts(self, ask, assignment) -> RequestFacts:  # type: ignore[no-untyped-def]
        facts = super()._facts(ask, assignment)
        return facts if self._study.usage else facts._replace(usage=Usage(), tpot_s=None)


def slower(pace: Pace, accepts: float) -> Pace:
    """The same steps with so many times the tokens."""
    return Pace(pace.step_s, tuple(accepts * each for each in pace.tokens), pace.surplus_tokens)


@cache
def bench_of(name: str, placement: Placement) -> Bench:
    """The bench of a curve."""
    curve = find(name)
    return Bench(curve, placement, paces(curve, MOST_IN_FLIGHT, CONTEXT_TOKENS), MOST_IN_FLIGHT)


def rate_of(study: Study) -> float:
    """Requests a second."""
    if study.rate_per_s is not None:
        return study.rate_per_s
    bench = bench_of(study.curve, study.placement)
    return study.load * capacity(bench.paces, bench.placement, works(bench, Gamma(1.0).means))


def arm_of(study: Study, *, learns: bool, knows: bool = False) -> Arm:
    """The policy of the placement by what the study believes, or by what is true where it `knows`."""
    bench = bench_of(study.curve, study.placement)
    policy = Policy.MARGINAL if study.placement is Placement.SEPARATE else Policy.CONSOLIDATE
    settings = settings_of(bench, policy)
    learn = settings.routing.learn.model_copy(update={"enabled": learns})
    settings = settings.model_copy(update={"routing": settings.routing.model_copy(update={"learn": learn})})
    curves = measured(bench) if knows else study.prior(measured(bench))
    return Arm(policy.value, settings.read_from(Sources({}, curves=curves)), bench.paces)


def ran(study: Study, seed: int, first: int, last: int, *, learns: bool = True, knows: bool = False) -> Ran:
    """Run requests; those from `first` on and before `last` count."""
    arm, true = arm_of(study, learns=learns, knows=knows), None
    if knows and study.change_s is not None:
        bench = bench_of(study.curve, study.placement)
        later = {**bench.paces, SPECULATIVE: slower(bench.paces[SPECULATIVE], study.accepts)}
        true = measured(replace(bench, paces=later))
    trial = LearningTrial(study, arm, seed, true)
    times = trial.run(first, last)
    learning = trial._desk.learning
    probes = learning.probes if learning is not None else None
    return Ran(
        fmean(times.e2e_s),
        probes.spent if probes else 0,
        probes.requests if probes else 0,
        learning.harm.suspended if learning is not None else 0,
        times.switches,
        tuple(times.e2e_s),
    )


def regret(study: Study, seed: int, first: int, last: int) -> float:
    """By how much the policy that learns is above the one that knows, as a share."""
    ours = ran(study, seed, first, last)
    return ours.mean_s / ran(study, seed, first, last, learns=False, knows=True).mean_s - 1.0


_ = ChangeKind, BASELINE

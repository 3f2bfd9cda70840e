"""Ways to use two engines: the proxy's own policies, and control arms to hold them against.

A policy decides in routing/ alone, by rules made from settings as the proxy makes them. A control arm chooses itself
and asks the desk for its choice by name, as a client may with a header, so that limits, counts and the queue are the
same. What the best possible choice is stands in oracles.py.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import ceil, log
from typing import Any, Protocol

from proxy.config import Settings, from_mapping
from proxy.config.key_files import Sources
from proxy.errors import ConfigError
from proxy.lab.adaptive import ADAPTIVE_TAX
from proxy.lab.curves import Curve, crossing
from proxy.lab.simulation.course import Level
from proxy.lab.simulation.goals import Slo
from proxy.lab.simulation.pace import Pace, Paces, adaptive
from proxy.lab.simulation.sharing import Station, Task
from proxy.model import BASELINE, ROLES, SPECULATIVE, Placement, Policy, Role
from proxy.routing.curves import ContextCurves, Curves, SpeedCurve, SpeedPoint
from proxy.routing.verdict import Contrast, judge


class View(Protocol):
    """What a control arm may look at when a request comes. Counts are of the desk; the request is not among them."""

    speculative: int
    baseline: int

    @property
    def stations(self) -> Mapping[Role, Station]:
        """Both engines."""


Choose = Callable[[View, Task], Role]


@dataclass(frozen=True, slots=True)
class Bench:
    """What is given where arms are compared: the curve, where its engines run, how fast they are, their limits, and the
    goals that policies are told (`routing.slo`)."""

    curve: Curve
    placement: Placement
    paces: Paces
    max_in_flight: int
    slo: Slo | None = None


@dataclass(frozen=True, slots=True)
class Arm:
    """One way. `choose` None leaves it to the policy of `settings`; `paces` are those of the bench but for arms that
    run other engines, and `later` is the same way where acceptance is not as measured."""

    name: str
    settings: Settings
    paces: Paces
    choose: Choose | None = field(default=None, compare=False)
    later: Mapping[Level, "Arm"] = field(default_factory=dict, compare=False)

    def at(self, level: Level) -> "Arm":
        """The same way with as much acceptance: other speeds, which control arms know. Policies are not told."""
        return self.later.get(level, self)


def arm(said: str, bench: Bench) -> Arm:
    """The arm of that name, with a number behind a colon where it takes one: `overflow:12`, `threshold:17/9`.

    Raises `ConfigError` that lists what there is.
    """
    name, _, value = said.partition(":")
    try:
        if name in _CONTROLS:
            return replace(_CONTROLS[name](bench, value), name=said)
        if name in set(Policy):
            return Arm(said, settings_of(bench, name, value), bench.paces)
    except ValueError as error:
        if value:
            raise ConfigError(
                f"--policy {said}: {value!r} is no number; mend: see `crossover simulate --help`"
            ) from error
        raise ConfigError(f"curve {bench.curve.name}: {error}, or correct its speeds, in output tok/s") from error
    raise ConfigError(f"no policy or control arm is called {name!r}; mend: take one of {', '.join(names())}")


def names() -> tuple[str, ...]:
    """All that `arm` knows."""
    return (*(policy.value for policy in Policy), *_CONTROLS)


def chosen_by(name: str, choose: Choose, bench: Bench, both: Paces | None = None) -> Arm:
    """A control arm of one's own."""
    # A policy without a memory: a regime that nobody looks at must not be counted as switching.
    routing = {"policy": Policy.OVERFLOW.value, "allow_header": True}
    return Arm(name, _settings(bench, routing), both or bench.paces, choose)


def settings_of(bench: Bench, policy: str, value: str = "") -> Settings:
    """Settings with one policy and the numbers that go with it: those of `value`, else after the curve's crossing."""
    wanted: dict[str, Any] = {"policy": policy}
    if policy == Policy.PINNED:
        wanted["pin"] = value or _faster_alone(bench)
    elif policy == Policy.THRESHOLD or (policy == Policy.AUTO and bench.placement is Placement.SHARED):
        leave_at, _, enter_at = value.partition("/")
        wanted["leave_at"] = int(leave_at) if leave_at else _crossing(bench)
        if enter_at:
            wanted["enter_at"] = int(enter_at)
    else:
        wanted["leave_at"] = int(value) if value else ceil(_crossing(bench) / 2)
    return _settings(bench, wanted)


def _settings(bench: Bench, routing: dict[str, Any]) -> Settings:
    urls = {SPECULATIVE.value: "http://127.0.0.1:1", BASELINE.value: "http://127.0.0.1:2"}  # nobody is called there
    backends = {role: {"url": url, "max_in_flight": bench.max_in_flight} for role, url in urls.items()}
    policy, rest = routing["policy"], {key: value for key, value in routing.items() if key != "policy"}
    rest = {"learn": {"enabled": False}, **rest}  # a policy is what its curves make of it, unless asked otherwise
    made = from_mapping({"backends": backends, "placement": bench.placement.value, "routing": rest})
    # Speeds come from a file there, without which policies that need some are refused. Here they come from the curve.
    slo = made.routing.slo if bench.slo is None else made.routing.slo.model_copy(update=bench.slo._asdict())
    asked = made.routing.model_copy(update={"policy": Policy(policy), "slo": slo})
    named = made.model_copy(update={"routing": asked})
    return named.read_from(Sources({}, curves=measured(bench)))


def measured(bench: Bench) -> Curves:
    """The curve as a calibration would have written it for routing: its points, or those of its fit, and a verdict."""
    curve, contrasts = bench.curve, []
    for point in curve.points:
        mean = log(point.speculative / point.baseline)
        contrasts.append(Contrast(point.concurrency, mean, mean, mean))
    drafted, plain = (_speeds(curve, bench.paces[role], role) for role in ROLES)
    prefill = (curve.prefill_tokens_per_s, curve.prefill_tokens_per_s)
    context = ContextCurves(curve.context_tokens, drafted, plain, judge(contrasts), tuple(contrasts), prefill)
    return Curves((context,), "simulated", bench.placement, curve.model)


def _speeds(curve: Curve, pace: Pace, role: Role) -> SpeedCurve:
    """A measurement where the curve has one, by the engine's true pace there, so that a fit is seen as the fit."""
    batches = sorted({min(round(speed.concurrency), pace.most) for speed in curve.speeds(role)} | {1})
    return SpeedCurve(tuple(SpeedPoint(float(batch), pace.tok_s(batch)) for batch in batches if batch))


def _crossing(bench: Bench) -> int:
    """From how many in flight the baseline is faster; the limit where it never is, 1 where it always is."""
    at = crossing(bench.curve)
    if at is not None:
        return max(1, min(ceil(at), bench.max_in_flight))
    return bench.max_in_flight if _faster_alone(bench) == SPECULATIVE else 1


def _faster_alone(bench: Bench) -> str:
    first = bench.curve.points[0]
    return (SPECULATIVE if first.speculative > first.baseline else BASELINE).value


# ---------------------------------------------------------------- control arms


def _always(role: Role) -> Callable[[Bench, str], Arm]:
    def make(bench: Bench, _value: str) -> Arm:
        return Arm("", _settings(bench, {"policy": Policy.PINNED.value, "pin": role.value}), bench.paces)

    return make


def _first(bench: Bench, value: str) -> Arm:
    """HAProxy's `balance first`: the first server until its maxconn, then the next. The usual guess is the crossing."""
    maxconn = int(value) if value else _crossing(bench)
    return chosen_by("", lambda view, _: SPECULATIVE if view.speculative < maxconn else BASELINE, bench)


def _faster(bench: Bench, _value: str) -> Arm:
    """Each request joins the engine that is the faster for itself."""
    drafted, plain = (_own_delay(bench.paces[role], bench.max_in_flight) for role in ROLES)
    return chosen_by(
        "", lambda view, _: SPECULATIVE if drafted[view.speculative] <= plain[view.baseline] else BASELINE, bench
    )


def _least_delay(bench: Bench, _value: str) -> Arm:
    """Each request goes where it delays all that are there least, by the formula alone and the true paces."""
    drafted, plain = (_grown_delay(bench.paces[role], bench.max_in_flight) for role in ROLES)
    return chosen_by(
        "", lambda view, _: SPECULATIVE if drafted[view.speculative] <= plain[view.baseline] else BASELINE, bench
    )


def _own_delay(pace: Pace, most: int) -> list[float]:
    return [*(pace.seconds_per_token(n + 1) for n in range(most)), float("inf")]


def _grown_delay(pace: Pace, most: int) -> list[float]:
    delay = [0.0, *(n * pace.seconds_per_token(n) for n in range(1, most + 1))]
    return [*(after - before for before, after in pairwise(delay)), float("inf")]


def _one_adaptive(bench: Bench, value: str) -> Arm:
    """No proxy that knows of speculation: engines that switch it themselves, one on shared GPUs, else two that are
    filled evenly."""
    pace = adaptive(bench.paces, float(value) if value else ADAPTIVE_TAX)
    return _of_one_kind(bench, pace)


def _two_baselines(bench: Bench, _value: str) -> Arm:
    """What the same GPUs do without speculation: two baselines that are filled evenly, or one on shared GPUs."""
    return _of_one_kind(bench, bench.paces[BASELINE])


def _of_one_kind(bench: Bench, pace: Pace) -> Arm:
    shared = bench.placement is Placement.SHARED

    def choose(view: View, _task: Task) -> Role:
        return SPECULATIVE if shared or view.speculative <= view.baseline else BASELINE

    return chosen_by("", choose, bench, dict.fromkeys(ROLES, pace))


_CONTROLS: dict[str, Callable[[Bench, str], Arm]] = {
    "only_speculative": _always(SPECULATIVE),
    "only_baseline": _always(BASELINE),
    "first": _first,
    "faster": _faster,
    "least_delay": _least_delay,
    "adaptive": _one_adaptive,
    "two_baselines": _two_baselines,
}

CONTROLS = ("only_speculative", "only_baseline", "first", "faster", "adaptive", "two_baselines")
"""What every comparison has beside the ways it is asked for."""

OF_ONE_KIND = {"adaptive", "two_baselines"}
"""Those whose two engines are alike, so that no share of theirs is speculative."""

"""Which ways are tried on the traffic, and what each would be in the configuration. Running them is in rounds.py."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import ceil
from typing import Any

from proxy.config import Settings, from_mapping
from proxy.errors import ConfigError
from proxy.lab.curve import crossing
from proxy.lab.replay.engines import Engines, of_baselines, of_speculative
from proxy.lab.replay.events import InForce
from proxy.lab.replay.rerun import Sequence
from proxy.lab.simulation.arms import Arm, View, arm, names
from proxy.lab.simulation.sharing import Bounds, Task
from proxy.model import BASELINE, ROLES, SPECULATIVE, Placement, Policy, Role

# Policies that have a number, which is looked for on the traffic itself where none is given.
SEARCHED = (Policy.OVERFLOW, Policy.THRESHOLD)
_BY_CURVES = (Policy.AUTO, Policy.MARGINAL, Policy.CONSOLIDATE)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way. `routing` are the keys that choose it; None where no configuration of Crossover does (controls)."""

    name: str
    arm: Arm
    bounds: Mapping[Role, Bounds]
    routing: Mapping[str, Any] | None = field(default=None, compare=False)


# Ways that are no policy: the configuration as it is, what was in force as the log came, and each request where it
# really went.
AS_IT_IS, AS_IT_WAS, AS_RECORDED = "as it is", "as it was", "as recorded"


@dataclass(frozen=True, slots=True)
class Ground:
    """What all candidates stand on: the present settings and those in force as the traffic came (None: the same, or
    not known), the engines, and how the curves file is to be named in a configuration."""

    settings: Settings
    engines: Engines
    was: Settings | None = None
    curves_file: str | None = None

    def candidate(self, said: str) -> Candidate:
        """The way of that name, as `crossover simulate` names them. Raises `ConfigError` that lists what there is."""
        if said in (AS_IT_IS, AS_IT_WAS):
            return self._configured(said, self.was or self.settings if said == AS_IT_WAS else self.settings)
        if said == AS_RECORDED:
            settings = with_limits(_with_routing(self.settings, _PLAIN), self.engines.limits)
            return Candidate(said, Arm(said, settings, self.engines.bench.paces, _where_it_went), self.engines.bounds)
        name, _, value = said.partition(":")
        if name in set(Policy):
            return self._policy(said, Policy(name), value)
        if name not in names():
            raise ConfigError(f"no policy or control arm is called {name!r}; mend: take one of {', '.join(names())}")
        return self._control(said, name)

    def _configured(self, said: str, settings: Settings) -> Candidate:
        name = f"{said}: {in_words(settings)}"
        return Candidate(name, Arm(name, settings, self.engines.bench.paces), self.engines.bounds, {})

    def _policy(self, said: str, policy: Policy, value: str) -> Candidate:
        try:
            keys = _keys(policy, value)
        except ValueError as error:
            raise ConfigError(f"--policy {said}: {value!r} means nothing there; mend: overflow:12, threshold:17/9, "
                              "pinned:speculative") from error  # fmt: skip
        settings = _with_routing(self.settings, keys)
        if policy in _BY_CURVES:
            settings = settings.read_from(replace(settings.sources, curves=self.engines.curves))
            if self.curves_file is not None:
                keys["curves_file"] = self.curves_file
        said = in_words(settings)
        return Candidate(said, Arm(said, settings, self.engines.bench.paces), self.engines.bounds, keys)

    def _control(self, said: str, name: str) -> Candidate:
        engines = self.engines
        if name == "two_baselines":
            engines = of_baselines(engines)
        elif name == "adaptive":
            engines = of_speculative(engines)
        found = arm(said, engines.bench)
        shown = f"first:{first_guess(engines)}" if said == "first" else said
        # What is not Crossover has none of its rules; who chooses asks the desk by name.
        plain = _PLAIN
        if found.choose is None:
            plain = {"policy": Policy.PINNED, "pin": found.settings.routing.pin, "rules": ()}
        settings = with_limits(_with_routing(self.settings, plain), engines.limits)
        return Candidate(shown, replace(found, name=shown, settings=settings), engines.bounds)


# A policy without a memory: a regime that nobody looks at must not be counted as switching.
_PLAIN: Mapping[str, Any] = {"policy": Policy.OVERFLOW, "allow_header": True, "rules": ()}


def _where_it_went(_view: View, task: Task) -> Role:
    assert isinstance(task, Sequence)
    assert task.ask is not None
    assert task.ask.came.was is not None
    return task.ask.came.was.role


def in_words(settings: Settings) -> str:
    """The policy with its numbers: `overflow:9`, `auto (marginal)`."""
    routing, effective = settings.routing, settings.rules().effective_policy
    return _effective(settings) if routing.policy is effective else f"{routing.policy} ({_effective(settings)})"


def _effective(settings: Settings) -> str:
    routing, policy = settings.routing, settings.rules().effective_policy
    number = {
        Policy.OVERFLOW: f":{routing.leave_at}",
        Policy.THRESHOLD: f":{routing.leave_at}/{routing.enters_at()}",
        Policy.PINNED: f":{routing.pin}",
    }
    return f"{policy}{number.get(policy, '')}"


def _keys(policy: Policy, value: str) -> dict[str, Any]:
    keys: dict[str, Any] = {"policy": policy}
    if policy is Policy.PINNED:
        keys["pin"] = Role(value)
    elif policy in SEARCHED:
        leave_at, _, enter_at = value.partition("/")
        keys["leave_at"] = int(leave_at)
        keys["enter_at"] = int(enter_at) if enter_at else "auto"
        if not (keys["leave_at"] >= 1 and (not enter_at or 0 <= int(enter_at) < keys["leave_at"])):
            raise ValueError(value)
        if policy is Policy.OVERFLOW:
            del keys["enter_at"]
    elif value:
        raise ValueError(value)
    return keys


def _with_routing(settings: Settings, keys: Mapping[str, Any]) -> Settings:
    sources = settings.sources
    routing = settings.routing.model_copy(update=dict(keys))
    if routing.enters_at() >= routing.leave_at:  # of another policy; it has no meaning in this one
        routing = routing.model_copy(update={"enter_at": "auto"})
    return settings.model_copy(update={"routing": routing}).read_from(sources)


def with_limits(settings: Settings, limits: Mapping[Role, int]) -> Settings:
    """The same with a number for `max_in_flight` of each backend."""
    sources = settings.sources
    each = {role.value: settings.backends.of(role).model_copy(update={"max_in_flight": limits[role]}) for role in ROLES}
    backends = settings.backends.model_copy(update=each)
    return settings.model_copy(update={"backends": backends}).read_from(sources)


def bare_settings(placement: Placement) -> Settings:
    """Settings without a file: the defaults."""
    urls = {SPECULATIVE.value: "http://127.0.0.1:1", BASELINE.value: "http://127.0.0.1:2"}  # nobody is called there
    return from_mapping({"backends": {role: {"url": url} for role, url in urls.items()}, "placement": placement.value})


def in_force(base: Settings, told: InForce, sent_to: Role | None, engines: Engines) -> Settings:
    """The same settings with what the log says was in force; `sent_to` is the role that got most requests."""
    keys: dict[str, Any] = {"policy": told.policy}
    if told.leave_at is not None:
        below = told.enter_at is not None and told.enter_at < told.leave_at
        keys |= {"leave_at": max(1, told.leave_at), "enter_at": told.enter_at if below else "auto"}
    # The log does not say whether clients might choose; those that did are in it.
    keys["allow_header"] = True
    if told.policy is Policy.PINNED and sent_to is not None:
        keys["pin"] = sent_to
    return with_curves(_with_routing(base, keys), engines)


def with_curves(settings: Settings, engines: Engines) -> Settings:
    """The same with the curves where its policy goes by some and it has none."""
    if settings.routing.policy not in _BY_CURVES or settings.sources.curves is not None:
        return settings
    return settings.read_from(replace(settings.sources, curves=engines.curves))


def same(one: Settings, other: Settings) -> bool:
    """Whether two settings decide by the same policy and the same numbers of it."""
    return _effective(one) == _effective(other)


def default_names(placement: Placement) -> tuple[str, ...]:
    """What is tried where nobody names anything; SEARCHED ones get their number from the traffic."""
    other = Policy.CONSOLIDATE if placement is Placement.SEPARATE else Policy.MARGINAL
    pinned = (f"{Policy.PINNED}:{role}" for role in ROLES)
    return ("auto", other, *SEARCHED, *pinned, "first", "adaptive", "two_baselines")


def first_guess(engines: Engines) -> int:
    """The number one would take by the curve alone: its crossing; the limit where the baseline never overtakes."""
    curve, limit = engines.bench.curve, engines.limits[SPECULATIVE]
    at = crossing(curve)
    if at is not None:
        return max(1, min(ceil(at), limit))
    return limit if curve.points[0].speculative > curve.points[0].baseline else 1


# Between two neighbours of these a rule's mean hardly moves, and the neighbourhood of the best is looked at closer.
_GRID = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
_CLOSER = 3


def numbers(most: int, _known: Mapping[int, float]) -> list[int]:
    """The numbers to try first, up to `most`."""
    return [number for number in _GRID if number <= most] or [1]


def closer(_most: int, known: Mapping[int, float]) -> list[int]:
    """Some between the best of those known, each with its mean, and its neighbours."""
    tried = sorted(known)
    place = tried.index(min(known, key=known.__getitem__))
    found: list[int] = []
    for one, other in pairwise(tried[max(0, place - 1) : place + 2]):
        step = max(1, ceil((other - one) / (_CLOSER + 1)))
        found += range(one + step, other, step)
    return found

"""One way through the whole traffic: the proxy's own desk, decision by decision, in front of two engines on a virtual
clock.

Beside lab/simulation/trial.py, which draws its requests: here each has a number, so that ways can be compared request
by request, its own traits and as many sequences as it had. What is made of the times is in noise.py and report.py.
"""

from array import array
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import nan
from random import Random

from proxy.dispatch import Assignment, Desk
from proxy.lab.replay.traffic import Came, Traffic
from proxy.lab.simulation import telling
from proxy.lab.simulation.arms import Arm
from proxy.lab.simulation.sharing import Bounds, Gpus, Station, Task
from proxy.lab.simulation.trial import desk_plan
from proxy.model import (
    BASELINE,
    ROLES,
    SPECULATIVE,
    Change,
    ChangeKind,
    Outcome,
    Placement,
    RequestFacts,
    Role,
    Traits,
    Usage,
)

_FINISHED, _NEVER_S = Outcome.FINISHED, float("inf")
# Which part of a step is left when a request comes is the same for all ways.
_SEED = 1
# Engines that are not done with the last request until nine times the log's span after it carried less than a tenth of
# what came. What is less beyond them is told in seconds. A short burst is none: within an hour it is over. Nor is one
# long answer: only what takes more than ten times what it would alone, for a queue or for what else runs, is kept back.
_HOPELESS_SHARE, _HOPELESS_S, _KEPT_BACK = 9.0, 3600.0, 10.0


@dataclass(slots=True)
class Times:
    """What each request took, by its place in the traffic, in seconds; `speculative` is 1 where it went there, and
    `most` are the most sequences in flight at once. NaN where a request was never served. `left_open` are the requests
    that had not ended when the last one came, `after_s` is how much longer they took, and `kept_back_s` how much longer
    those of them took that the load kept back."""

    e2e_s: "array[float]"
    ttft_s: "array[float]"
    tpot_s: "array[float]"
    speculative: bytearray
    waited: bytearray
    switches: int = 0
    most: dict[Role, int] = field(default_factory=lambda: dict.fromkeys(ROLES, 0))
    left_open: int = 0
    after_s: float = 0.0
    kept_back_s: float = 0.0

    def overloaded(self, span_s: float) -> bool:
        """Whether far more came in so many seconds than the engines carried: the times tell no more than that."""
        return self.kept_back_s > max(_HOPELESS_SHARE * span_s, _HOPELESS_S)


@dataclass(slots=True, eq=False)
class Sequence(Task):
    """One sequence of a request in an engine."""

    ask: "Ask | None" = None


@dataclass(slots=True, eq=False)
class Ask:
    """A request on its way; `left` are its sequences that have not ended."""

    number: int
    came: Came
    step_share: float
    traits: Traits
    assignment: Assignment | None = None
    left: int = 0
    cached_tokens: int = 0
    sent_at_s: float = 0.0
    first_at_s: float = _NEVER_S
    ended_at_s: float = 0.0


class Rerun:
    """The desk and both engines. `now_s` is the only clock; it is a view for control arms."""

    def __init__(self, arm: Arm, bounds: Mapping[Role, Bounds], traffic: Traffic) -> None:
        self.now_s = 0.0
        self.speculative = self.baseline = 0
        self.stations = {role: Station(arm.paces[role], bounds[role]) for role in ROLES}
        count = len(traffic.requests)
        self.times = Times(_none(count), _none(count), _none(count), bytearray(count), bytearray(count))
        self._desk = Desk(desk_plan(arm.settings), lambda: self.now_s)
        self._desk.on_change = self._note
        for role in ROLES:
            self._desk.learn_facts(self._desk.backend(role), telling.facts(self.stations[role], role))
        self._choose = arm.choose
        self._requests = traffic.requests
        self._queue: deque[Ask] = deque()
        self._coming = True
        every = [self.stations[role] for role in ROLES]
        self._gpus = {role: Gpus(self.stations[role]) for role in ROLES}
        if arm.settings.placement is Placement.SHARED:
            self._gpus = dict.fromkeys(ROLES, Gpus(*every))

    def run(self) -> Times:
        """Until all requests have ended."""
        one, other = self._gpus[SPECULATIVE], self._gpus[BASELINE]
        requests, rng, number = self._requests, Random(_SEED), 0
        while True:
            gpus = one if one.next_at_s <= other.next_at_s else other
            comes_at_s = requests[number].at_s if number < len(requests) else _NEVER_S
            if comes_at_s <= gpus.next_at_s:
                if comes_at_s == _NEVER_S:
                    self.times.after_s = self.now_s - requests[-1].at_s if requests else 0.0
                    return self.times
                self.now_s = comes_at_s
                self.times.left_open += 1
                self._offer(Ask(number, requests[number], rng.random(), requests[number].traits))
                number += 1
                self._coming = number < len(requests)
                continue
            self.now_s = gpus.next_at_s
            ended = gpus.fire()
            if ended is not None:
                assert isinstance(ended, Sequence)
                assert ended.ask is not None
                self._ended(ended, ended.ask)

    def expected_tokens(self, route: str) -> float:
        """What the desk expects an answer of this route to have by now."""
        return self._desk.answers.expected(route)

    def _offer(self, ask: Ask) -> None:
        if self._queue or not self._place(ask):
            self.times.waited[ask.number] = 1
            self._queue.append(ask)

    def _place(self, ask: Ask) -> bool:
        """Give a request to an engine, if the desk has a place for it."""
        traits = ask.came.traits
        if self._choose is not None:
            traits = traits._replace(asked=self._asked(self._choose(self, _sequence(ask)), traits.weight))
        assignment = self._desk.assign(traits, "", ask.came.route)
        if not isinstance(assignment, Assignment):
            return False
        ask.assignment, ask.traits, ask.sent_at_s = assignment, traits, self.now_s
        role, weight = assignment.backend.role, assignment.lease.weight
        self._counted(role, weight)
        station, gpus = self.stations[role], self._gpus[role]
        ask.left = weight
        for place in range(weight):
            gpus.submit(station, _sequence(ask, first=place == 0), self.now_s)
        return True

    def _asked(self, role: Role, weight: int) -> Role:
        """The role that a control arm chose, or the other one where that is full: it is no firm wish of anybody's."""
        limit = self._desk.backend(role).limit
        held = self.speculative if role is SPECULATIVE else self.baseline
        return role if limit is None or held + min(weight, limit) <= limit else role.other

    def _counted(self, role: Role, weight: int) -> None:
        if role is SPECULATIVE:
            self.speculative = count = self.speculative + weight
        else:
            self.baseline = count = self.baseline + weight
        self.times.most[role] = max(self.times.most[role], count)

    def _ended(self, sequence: Sequence, ask: Ask) -> None:
        ask.first_at_s = min(ask.first_at_s, sequence.first_at_s, self.now_s)
        ask.cached_tokens += sequence.cached_tokens
        ask.left -= 1
        if ask.left:
            return
        assignment = ask.assignment
        assert assignment is not None
        role = assignment.backend.role
        self._counted(role, -assignment.lease.weight)
        self._desk.settle(assignment, _FINISHED)
        ask.ended_at_s = self.now_s
        self._desk.heard(_facts(ask, assignment))
        self._write(ask, role)
        if not self._coming and self._kept_back(ask, role):
            self.times.kept_back_s = self.now_s - self._requests[-1].at_s
        self.times.left_open -= self._coming
        while self._queue and self._place(self._queue[0]):
            self._queue.popleft()

    def _kept_back(self, ask: Ask, role: Role) -> bool:
        came, station = ask.came, self.stations[role]
        prefill_s = came.uncached_tokens / station.bounds.prefill_tokens_per_s
        alone_s = prefill_s + came.tokens * station.pace.seconds_per_token(1)
        return ask.ended_at_s - came.at_s > _KEPT_BACK * alone_s

    def _write(self, ask: Ask, role: Role) -> None:
        times, number, came = self.times, ask.number, ask.came
        times.e2e_s[number] = ask.ended_at_s - came.at_s
        times.ttft_s[number] = ask.first_at_s - came.at_s
        times.tpot_s[number] = nan if (tpot_s := _tpot_s(ask)) is None else tpot_s
        times.speculative[number] = role is SPECULATIVE

    def _note(self, change: Change) -> None:
        self.times.switches += change.kind is ChangeKind.REGIME


def _none(count: int) -> "array[float]":
    return array("d", [nan]) * count


def _facts(ask: Ask, assignment: Assignment) -> RequestFacts:
    """What the proxy would know of it."""
    came = ask.came
    cached = came.prompt_tokens - came.uncached_tokens + ask.cached_tokens
    return RequestFacts(
        request_id="",
        route=came.route,
        method="POST",
        outcome=_FINISHED,
        status=200,
        decision=assignment.decision,
        traits=ask.traits,
        duration_s=ask.ended_at_s - came.at_s,
        queue_s=ask.sent_at_s - came.at_s,
        ttft_s=ask.first_at_s - came.at_s,
        tpot_s=_tpot_s(ask),
        usage=Usage(came.prompt_tokens, round(came.heard_tokens * came.traits.weight), cached),
        url=assignment.backend.url,
    )


def _tpot_s(ask: Ask) -> float | None:
    """Seconds for each token after the first; None where there is no other."""
    return (ask.ended_at_s - ask.first_at_s) / (ask.came.tokens - 1) if ask.came.tokens > 1 else None


def _sequence(ask: Ask, *, first: bool = True) -> Sequence:
    """A sequence; the prompt is taken in once for all of a request."""
    came = ask.came
    if first:
        task = Sequence(came.uncached_tokens, came.tokens, ask.step_share, came.blocks)
    else:
        task = Sequence(0, came.tokens, ask.step_share)
    task.ask = ask
    return task

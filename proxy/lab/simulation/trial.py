"""One run: requests from a source through the proxy's own desk to two engines, on a virtual clock.

Nothing waits for a clock here and nothing is left to chance: the same source gives the same run. What is made of the
times of many runs is in tally.py.
"""

from array import array
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from proxy.config import Settings
from proxy.dispatch import Assignment, BackendPlan, Desk, Plan
from proxy.lab.simulation import telling
from proxy.lab.simulation.agenda import Agenda
from proxy.lab.simulation.arms import Arm
from proxy.lab.simulation.arrivals import NEVER_S, Offer, Source
from proxy.lab.simulation.course import POLL_S, Course
from proxy.lab.simulation.moments import Moments
from proxy.lab.simulation.sharing import Bounds, Gpus, Station, Task
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

_FINISHED = Outcome.FINISHED
_ROUTE, _TRAITS = "/v1/chat/completions", Traits(stream=True)
_QUIET = Course()


@dataclass(slots=True)
class Times:
    """What was seen of the requests that count, in their order of ending. Seconds, and tokens for `tokens`.

    `in_flight_s` is the sum of the time that requests spent in flight or waiting, `span_s` the length of
    the run, and `began_s` when the first request that counts came.
    """

    e2e_s: "array[float]" = field(default_factory=lambda: array("d"))
    ttft_s: "array[float]" = field(default_factory=lambda: array("d"))
    tpot_s: "array[float]" = field(default_factory=lambda: array("d"))
    speculative: int = 0
    waited: int = 0
    tokens: int = 0
    switches: int = 0
    offered: int = 0
    in_flight_s: float = 0.0
    span_s: float = 0.0
    began_s: float = 0.0
    most: dict[Role, int] = field(default_factory=lambda: dict.fromkeys(ROLES, 0))


@dataclass(slots=True, eq=False)
class _Ask(Task):
    """A request with what the desk gave it."""

    number: int = 0
    conversation: int = 0
    asked_at_s: float = 0.0
    waited: bool = False
    sent_at_s: float = 0.0
    assignment: Assignment | None = None
    traits: Traits = _TRAITS


def desk_plan(settings: Settings) -> Plan:
    """What the desk works by, from settings as the proxy makes it; it calls nobody, so no wires are planned."""
    backends = [BackendPlan(role, settings.backends.of(role).url, _limit(settings, role)) for role in ROLES]
    return Plan(
        backends=(backends[0], backends[1]),
        rules=settings.rules(),
        breaker=settings.breaker_rules(),
        health=settings.health_rules(),
        retries=settings.retry_rules(),
    )


def _limit(settings: Settings, role: Role) -> int | None:
    limit = settings.backends.of(role).max_in_flight
    return None if limit == "auto" else limit


class Trial:
    """The desk and its two engines. `now_s` is the only clock, of the desk as well; it is a view for control arms.

    `looks` is what the desk sees of a request, but for its prefix and conversation.
    """

    def __init__(
        self,
        arm: Arm,
        bounds: Mapping[Role, Bounds],
        source: Source,
        course: Course = _QUIET,
        looks: Callable[[Task], Traits] = lambda task: Traits(1, True, None, 4 * task.prompt_tokens),
    ) -> None:
        self.now_s = 0.0
        self.times = Times()
        self.stations = {role: Station(arm.paces[role], bounds[role]) for role in ROLES}
        self.speculative = self.baseline = 0
        self._desk = Desk(desk_plan(arm.settings), lambda: self.now_s)
        self._desk.on_change = self._note
        self._choose = arm.choose
        self._source = source
        self._looks = looks
        self._queue: deque[_Ask] = deque()
        shared = arm.settings.placement is Placement.SHARED
        every = [self.stations[role] for role in ROLES]
        self._gpus = {role: Gpus(self.stations[role]) for role in ROLES}
        if shared:
            self._gpus = dict.fromkeys(ROLES, Gpus(*every))
        self._agenda = Agenda()
        for role in ROLES:
            self._desk.learn_facts(self._desk.backend(role), telling.facts(self.stations[role], role))
        if course.polled:
            for station in every:
                station.moments = Moments()
            self._poll()

    def run(self, first: int, last: int) -> Times:
        """Until the requests from number `first` on and before `last` have ended, or nothing comes any more. Only they
        count; those before let the engines fill, and those after keep them busy to the end."""
        source, times, agenda = self._source, self.times, self._agenda
        times.began_s = NEVER_S
        one, other = self._gpus[SPECULATIVE], self._gpus[BASELINE]
        left = last - first
        while left:
            gpus = one if one.next_at_s <= other.next_at_s else other
            comes_at_s, at_s = source.next_at_s, gpus.next_at_s
            coming = comes_at_s <= at_s
            if coming:
                at_s = comes_at_s
            if at_s == NEVER_S and not agenda.open:
                break
            noted = agenda.due_s < at_s
            if noted:
                at_s = agenda.due_s
            times.in_flight_s += (at_s - self.now_s) * (self.speculative + self.baseline + len(self._queue))
            self.now_s = at_s
            if noted:
                agenda.fire()
                continue
            if coming:
                self._offer(source.take())
                continue
            ended = gpus.fire()
            if ended is not None:
                assert isinstance(ended, _Ask)
                self._end(ended)
                if first <= ended.number < last:
                    left -= 1
                    self._count(ended)
        times.span_s = self.now_s
        return times

    def _offer(self, offer: Offer) -> None:
        _, prompt_tokens, tokens, step_share, blocks, conversation = offer
        ask = _Ask(prompt_tokens, tokens, step_share, blocks)
        ask.conversation, ask.number, ask.asked_at_s = conversation, self.times.offered, self.now_s
        self.times.offered += 1
        if self._queue or not self._place(ask):
            ask.waited = True
            self._queue.append(ask)

    def _place(self, ask: _Ask) -> bool:
        """Give a request to an engine, if the desk has a place for it."""
        asked = None if self._choose is None else self._asked(self._choose(self, ask))
        ask.traits = self._looks(ask)._replace(asked=asked, prefix=ask.blocks, conversation=ask.conversation)
        assignment = self._desk.assign(ask.traits, "", _ROUTE)
        if not isinstance(assignment, Assignment):
            return False
        ask.assignment, ask.sent_at_s = assignment, self.now_s
        role = assignment.backend.role
        if role is SPECULATIVE:
            self.speculative = count = self.speculative + 1
        else:
            self.baseline = count = self.baseline + 1
        self.times.most[role] = max(self.times.most[role], count)
        self._gpus[role].submit(self.stations[role], ask, self.now_s)
        return True

    def _asked(self, role: Role) -> Role:
        """The role that a control arm chose, or the other one where that is full: it is no firm wish of anybody's."""
        limit = self._desk.backend(role).limit
        held = self.speculative if role is SPECULATIVE else self.baseline
        return role if limit is None or held < limit else role.other

    def _end(self, ask: _Ask) -> None:
        assignment = ask.assignment
        assert assignment is not None
        if assignment.backend.role is SPECULATIVE:
            self.speculative -= 1
        else:
            self.baseline -= 1
        self._desk.settle(assignment, _FINISHED)
        self._desk.heard(self._facts(ask, assignment))
        self._source.ended(self.now_s)
        while self._queue and self._place(self._queue[0]):
            self._queue.popleft()

    def _facts(self, ask: _Ask, assignment: Assignment) -> RequestFacts:
        """What the proxy would know of it."""
        asked_at_s, first_at_s = ask.asked_at_s, min(ask.first_at_s, ask.ended_at_s)
        return RequestFacts(
            request_id="",
            route=_ROUTE,
            method="POST",
            outcome=_FINISHED,
            status=200,
            decision=assignment.decision,
            traits=ask.traits,
            duration_s=ask.ended_at_s - asked_at_s,
            queue_s=ask.sent_at_s - asked_at_s,
            ttft_s=first_at_s - asked_at_s,
            tpot_s=(ask.ended_at_s - first_at_s) / (ask.length - 1) if ask.length > 1 else None,
            usage=Usage(ask.prompt_tokens, ask.length, ask.cached_tokens),
        )

    def _poll(self) -> None:
        """Ask each engine for its load, now and from now on."""
        desk = self._desk
        for role in ROLES:
            self._gpus[role].advance(self.now_s)
            desk.observe_load(desk.backend(role), telling.load(self.stations[role], role, self.now_s))
        self._agenda.at(self.now_s + POLL_S, self._poll, idle=True)

    def _count(self, ask: _Ask) -> None:
        times, ended_at_s, asked_at_s = self.times, ask.ended_at_s, ask.asked_at_s
        times.began_s = min(times.began_s, asked_at_s)
        first_at_s = min(ask.first_at_s, ended_at_s)
        times.e2e_s.append(ended_at_s - asked_at_s)
        times.ttft_s.append(first_at_s - asked_at_s)
        times.tpot_s.append((ended_at_s - first_at_s) / (ask.length - 1) if ask.length > 1 else 0.0)
        times.tokens += ask.length
        times.waited += ask.waited
        times.speculative += ask.assignment is not None and ask.assignment.backend.role is SPECULATIVE

    def _note(self, change: Change) -> None:
        self.times.switches += change.kind is ChangeKind.REGIME

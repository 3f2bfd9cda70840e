"""One run: requests from a source through the proxy's own desk to two engines, on a virtual clock.

Nothing waits for a clock here and nothing is left to chance: the same source gives the same run. What else happens
meanwhile is in happenings.py, and what becomes of a request that does not end well in endings.py.
"""

from collections import deque
from collections.abc import Callable, Mapping

from proxy.config import Settings
from proxy.dispatch import Assignment, BackendPlan, Desk, Plan
from proxy.lab.simulation import telling
from proxy.lab.simulation.agenda import Agenda
from proxy.lab.simulation.arms import Arm
from proxy.lab.simulation.arrivals import NEVER_S, Offer, Source
from proxy.lab.simulation.ask import ROUTE, Ask
from proxy.lab.simulation.course import Course
from proxy.lab.simulation.endings import Endings
from proxy.lab.simulation.happenings import Happenings
from proxy.lab.simulation.sharing import Bounds, Gpus, Station, Task
from proxy.lab.simulation.times import Times
from proxy.model import ROLES, SPECULATIVE, Change, ChangeKind, Outcome, Placement, Role, Traits
from proxy.routing.affinity import Wait
from proxy.routing.breaker import Event

_FINISHED = Outcome.FINISHED
_QUIET = Course()

# A run is given up when so many wait for a place as nine times the requests of the whole run: then more than ten times
# as much has come as the engines carried, and the last that counts may be years away. What is less beyond them ends
# and is told in seconds. In a short run a burst alone may be nine times all of it, but not so many, nor for so long. It
# may be of any size where the mean rate is known: the queue must last until as much would have come at that rate.
_HOPELESS_SHARE, _HOPELESS_WAITING, _HOPELESS_S = 9, 10_000, 1800.0


def desk_plan(settings: Settings) -> Plan:
    """What the desk works by, from settings as the proxy makes it; it calls nobody, so no wires are planned."""
    backends = [BackendPlan(role, settings.backends.of(role).url, _limit(settings, role)) for role in ROLES]
    return Plan(
        backends=(backends[0], backends[1]),
        rules=settings.rules(),
        breaker=settings.breaker_rules(),
        health=settings.health_rules(),
        retries=settings.retry_rules(),
        learns=settings.routing.learn.enabled,
    )


def _limit(settings: Settings, role: Role) -> int | None:
    limit = settings.backends.of(role).max_in_flight
    return None if limit == "auto" else limit


class Trial:
    """The desk and its two engines. `now_s` is the only clock, of the desk as well; it is a view for control arms.

    `looks` is what the desk sees of a request, but for its prefix and conversation; by default a chat of its size.
    """

    def __init__(
        self,
        arm: Arm,
        bounds: Mapping[Role, Bounds],
        source: Source,
        course: Course = _QUIET,
        looks: Callable[[Task], Traits] | None = None,
    ) -> None:
        self.now_s = 0.0
        self.times = Times()
        self.agenda = Agenda()
        self.stations = {role: Station(arm.paces[role], bounds[role]) for role in ROLES}
        self.gpus = _gpus(self.stations, arm.settings.placement)
        self.speculative = self.baseline = 0
        self.queue: deque[Ask] = deque()
        self.desk = Desk(desk_plan(arm.settings), lambda: self.now_s)
        self.desk.on_change = self._note
        self.choose = arm.choose
        self._source = source
        self._looks = looks
        self._first = self._last = self._left = 0
        self._giving = False
        self._queued_at_s = 0.0
        self.endings = Endings(self)
        for role in ROLES:
            self.desk.learn_facts(self.desk.backend(role), telling.facts(self.stations[role], role))
        self.happenings = Happenings(self, arm, course)
        # Where nothing can go wrong there is nothing to tell the breaker.
        self._perilous = bool(course.losses)

    def run(self, first: int, last: int, rate_per_s: float = 0.0) -> Times:
        """Until the requests from number `first` on and before `last` have ended, or nothing comes any more. Only they
        count; those before let the engines fill, and those after keep them busy to the end. It is given up where the
        engines will never be done with them (`Times.left_waiting`). `rate_per_s` is at what mean they come, 0 where
        that is not known."""
        source, times, agenda = self._source, self.times, self.agenda
        times.began_s, hopeless = NEVER_S, _HOPELESS_SHARE * last
        burst_s = hopeless / rate_per_s if rate_per_s else 0.0
        one, other = self.gpus[SPECULATIVE], self.gpus[ROLES[1]]
        self._first, self._last, self._left = first, last, last - first
        while self._left:
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
            times.in_flight_s += (at_s - self.now_s) * (self.speculative + self.baseline + len(self.queue))
            self.now_s = at_s
            if noted:
                agenda.fire()
            elif coming:
                self._offer(source.take())
                if len(self.queue) > hopeless and self._lasts(burst_s):
                    times.left_waiting = len(self.queue)
                    break
            elif (ended := gpus.fire()) is not None:
                assert isinstance(ended, Ask)
                self._end(ended)
        times.span_s = self.now_s
        return times

    # ------------------------------------------------------------ from coming to a place

    def _lasts(self, burst_s: float) -> bool:
        """Whether the queue is more than a burst that ends by itself."""
        many = self.now_s > _HOPELESS_S or len(self.queue) > _HOPELESS_WAITING
        return many and self.now_s - self._queued_at_s >= burst_s

    def _offer(self, offer: Offer) -> None:
        ask = Ask(offer.prompt_tokens, offer.tokens, offer.step_share, offer.blocks, offer.acceptance)
        ask.conversation, ask.number, ask.asked_at_s = offer.conversation, self.times.offered, self.now_s
        self.times.offered += 1
        if not self.queue:
            self._queued_at_s = self.now_s
        if offer.read < 1.0:
            ask.stays_tokens = max(1.0, offer.read * offer.tokens)
        if offer.patience_s != NEVER_S:
            self.endings.leaves(ask, self.now_s + offer.patience_s)
        if self.queue or not self.place(ask, wait=Wait()):
            self.wait(ask)
            if len(self.queue) > 1 and self.desk.rules.affine:
                self.give_places()  # those before it may wait for one backend alone

    def place(self, ask: Ask, promised: frozenset[Role] = frozenset(), wait: Wait | None = None) -> bool:
        """Give a request to an engine, if the desk has a place for it; one to which nobody listens fails it."""
        asked = None if self.choose is None else self._asked(self.choose(self, ask))
        looks = Traits(1, True, None, 4 * ask.prompt_tokens) if self._looks is None else self._looks(ask)
        ask.traits = looks._replace(asked=asked, prefix=ask.blocks, conversation=ask.conversation)
        attempt = 1 if ask.failed is None else 2
        assignment = self.desk.assign(
            ask.traits, "", ROUTE, failed=ask.failed, promised=promised, attempt=attempt, wait=wait
        )
        if not isinstance(assignment, Assignment):
            return False
        ask.placed(assignment, self.now_s)
        role = assignment.backend.role
        if role is SPECULATIVE:
            self.speculative = count = self.speculative + 1
        else:
            self.baseline = count = self.baseline + 1
        if role in self.happenings.lost:
            return self.endings.refused(ask)
        # Some steps early: no engine here refuses a prompt that it was sent.
        self.desk.taken(assignment, ask.traits)
        self.times.most[role] = max(self.times.most[role], count)
        self.gpus[role].submit(self.stations[role], ask, self.now_s)
        if assignment.probe:
            self.endings.watch(ask)
        return True

    def wait(self, ask: Ask) -> None:
        """Let a request wait for a place; one that has failed once waits before those that have not."""
        ask.waited = True
        if ask.failed is None:
            self.queue.append(ask)
        else:
            self.queue.insert(sum(each.failed is not None for each in self.queue), ask)
        self.happenings.look_again()

    def give_places(self) -> None:
        """Place who waits, in their order, as far as there is room: as wire/admission.py does."""
        queue = self.queue
        if self._giving:
            return  # what has just failed made room: it is looked for below, one after the other
        self._giving = True
        ahead, left = dict.fromkeys(ROLES, 0), list[Ask]()
        while queue and not all(ahead.values()):
            ask = queue.popleft()
            if ask.failed is not None and not self.desk.serves_beside(ask.failed):
                self.endings.fails(ask)
                continue
            blocked = frozenset(role for role in ROLES if ahead[role])
            wait = Wait(self.now_s - ask.asked_at_s, *ahead.values())
            if not self.place(ask, blocked, wait):
                left.append(ask)
                if not self.desk.rules.affine:
                    break  # nobody waits for a home, and all others would wait for the same
                # A control arm chooses anew each time, so that it waits for whichever is free first.
                for role in ROLES if self.choose is not None else self.desk.claims(ask.traits, ask.failed):
                    ahead[role] += 1
        queue.extendleft(reversed(left))
        self._giving = False

    def _asked(self, role: Role) -> Role:
        """The role that a control arm chose, or the other one where that is full: it is no firm wish of anybody's."""
        limit = self.desk.backend(role).limit
        held = self.speculative if role is SPECULATIVE else self.baseline
        return role if limit is None or held < limit else role.other

    # ------------------------------------------------------------ from a place to the end

    def _end(self, ask: Ask) -> None:
        if ask.over:
            return  # its engine has found out
        if ask.stays_tokens < ask.length:
            self.endings.gone(ask)
            return
        assignment = ask.assignment
        assert assignment is not None
        if self._perilous:
            self.desk.judge(assignment, Event.SUCCESS)
        self.settle(ask, _FINISHED)
        if self.closed(ask, _FINISHED):
            self._count(ask)

    def settle(self, ask: Ask, outcome: Outcome, *, unheard: bool = False) -> None:
        """End what a request has at the desk, if it has a place."""
        assignment = ask.assignment
        if assignment is None:
            return
        if assignment.backend.role is SPECULATIVE:
            self.speculative -= 1
        else:
            self.baseline -= 1
        self.desk.settle(assignment, outcome, unheard=unheard)

    def closed(self, ask: Ask, outcome: Outcome) -> bool:
        """Tell everybody that a request has come to its end; whether it is one of those that count."""
        ask.over = True
        counts = self._first <= ask.number < self._last
        self._left -= counts
        self.desk.heard(ask.facts(outcome, self.now_s))
        self._source.ended(self.now_s, ask.conversation)
        if self.queue:
            self.give_places()
        return counts

    def _count(self, ask: Ask) -> None:
        times, ended_at_s, asked_at_s = self.times, ask.ended_at_s, ask.asked_at_s
        times.began_s = min(times.began_s, asked_at_s)
        first_at_s = min(ask.first_at_s, ended_at_s)
        times.e2e_s.append(ended_at_s - asked_at_s)
        times.ttft_s.append(first_at_s - asked_at_s)
        times.tpot_s.append((ended_at_s - first_at_s) / (ask.length - 1) if ask.length > 1 else 0.0)
        times.length.append(ask.length)
        times.waited += ask.waited
        times.speculative += ask.assignment is not None and ask.assignment.backend.role is SPECULATIVE

    def _note(self, change: Change) -> None:
        self.times.switches += change.kind is ChangeKind.REGIME


def _gpus(stations: Mapping[Role, Station], placement: Placement) -> dict[Role, Gpus]:
    if placement is Placement.SHARED:
        return dict.fromkeys(ROLES, Gpus(*(stations[role] for role in ROLES)))
    return {role: Gpus(stations[role]) for role in ROLES}

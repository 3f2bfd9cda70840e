"""What one request's attempts show of their backends: each is judged once, the first of two by what the second shows.

Whom a failure is held against is pure and in routing/blame.py; sending and failing over are in relay.py.
"""

from dataclasses import dataclass, field

from proxy.dispatch import Assignment, Desk
from proxy.errors import BackendSilent, OutOfSockets, UpstreamError
from proxy.model import Reason, Traits
from proxy.routing import blame
from proxy.routing.blame import Fault, Suspicion
from proxy.routing.breaker import Event
from proxy.wire.attempt import Opened


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why an attempt is not passed on yet: it failed before commit, and the other backend may do better.

    `event` is what it says of its backend; `certain` that the backend failed by itself, whatever the request was;
    `free` that a second attempt costs no second generation, or was taken from the budget; `answer` is the backend's
    own, where there is one.
    """

    error: UpstreamError
    event: Event
    certain: bool = False
    free: bool = False
    answer: Opened | None = None

    @property
    def doubtful(self) -> bool:
        """Whether the request itself may be to blame."""
        return self.event is Event.FAILURE and not self.certain

    @property
    def silent(self) -> bool:
        """Whether its backend stands still: the request was to leave it, and may have it again once it serves."""
        return isinstance(self.error, BackendSilent)

    @property
    def stays(self) -> bool:
        """Whether no other backend is tried: a second attempt would want what the proxy itself is out of."""
        return isinstance(self.error, OutOfSockets)

    @property
    def failed(self) -> tuple[str, int | None]:
        """The code of its error, and the HTTP status that the backend had given; None where it gave none."""
        return self.error.code, None if self.answer is None else self.answer.status


def unanswered(error: UpstreamError) -> Trouble:
    """The trouble of an attempt that brought no answer. What stands still is out by its probes: a circuit that opened
    beside that would keep it out when it goes on."""
    if isinstance(error, BackendSilent):
        return Trouble(error, Event.NEUTRAL, free=True)
    if isinstance(error, OutOfSockets):
        return Trouble(error, Event.NEUTRAL)
    return Trouble(error, Event.FAILURE, certain=not error.reached, free=not error.reached)


@dataclass(slots=True)
class Record:
    """What the requests before this one have shown; one for all hearings."""

    suspicion: Suspicion = field(default_factory=Suspicion)


class Hearing:
    """The attempts of one request. Used in this order: `began`, then either `served`, `refused` or `failed`, or
    `moved` and the same again for the second attempt; `closed` at the end, whatever happened."""

    __slots__ = ("_asked", "_desk", "_first", "_latest", "_present", "_record", "_wanted")

    def __init__(self, desk: Desk, record: Record) -> None:
        self._desk = desk
        self._record = record
        self._present: Assignment | None = None  # until its backend is judged
        self._latest: Assignment | None = None  # also after that
        self._asked: tuple[Traits, str] = (Traits(), "")  # with the route
        self._wanted: Assignment | None = None  # the place it was first given, until it is known to be served
        self._first: tuple[Assignment, Trouble] | None = None  # the same of the attempt before

    @property
    def url(self) -> str | None:
        """Which backend the latest attempt was made on; None where none was."""
        return None if self._latest is None else self._latest.backend.url

    def began(self, assignment: Assignment, traits: Traits, route: str) -> None:
        """An attempt is made."""
        if self._latest is None:
            self._asked, self._wanted = (traits, route), assignment
        self._present = self._latest = assignment

    def moved(self, trouble: Trouble) -> None:
        """The attempt failed, and the request goes to the other backend: what happens there will tell whose fault."""
        if self._present is None:
            return
        self._first, self._present = (self._present, trouble), None
        if trouble.doubtful:
            self._record.suspicion = blame.begin(self._record.suspicion)

    def served(self) -> None:
        """The present attempt's answer is good, so that an earlier failure was its backend's own."""
        self._wanted = None
        if self._latest is not None:
            self._desk.taken(self._latest, self._asked[0])
        if self._first is not None:
            self._judge_first(Fault.BACKEND)

    def refused(self) -> None:
        """The present backend calls the request itself wrong: an earlier one may have stumbled over just that."""
        self._withdraw()
        self._judge_first(Fault.REQUEST)

    def failed(self, trouble: Trouble) -> None:
        """The present attempt failed and no other is made.

        A request that failed on both sides is taken to be the cause itself: neither backend is blamed, unless it
        could not even be reached. So is one that no other backend can be asked to serve, since one alone has the state
        that it names: nothing would ever show that it, and not the backend, is to blame. A backend that fails others
        too is seen by them.
        """
        both = self._first is not None and self._first[1].doubtful and trouble.doubtful
        tied = self._present is not None and self._present.decision.reason is Reason.STATE
        fault = Fault.REQUEST if both or tied else Fault.UNKNOWN
        self._judge_first(fault)
        self.judge(self._blame(trouble, fault))

    def judge(self, event: Event) -> None:
        """Tell the breaker how the present attempt went; only the first word counts."""
        assignment, self._present = self._present, None
        if assignment is not None:
            self._desk.judge(assignment, event)

    def closed(self) -> None:
        """The request has ended; what was not judged says nothing, and what was not served is no demand: its client
        left before the first token, or both backends failed it or were too busy for it."""
        self._withdraw()
        if self._first is not None:
            self._judge_first(Fault.UNKNOWN)
        if self._present is not None:
            self.judge(Event.NEUTRAL)

    def _withdraw(self) -> None:
        wanted, self._wanted = self._wanted, None
        if wanted is not None:
            self._desk.withdraw(wanted, *self._asked)

    def _judge_first(self, fault: Fault) -> None:
        if self._first is None:
            return
        (assignment, trouble), self._first = self._first, None
        if trouble.doubtful:
            self._record.suspicion = blame.end(self._record.suspicion, fault)
        self._desk.judge(assignment, self._blame(trouble, fault))

    def _blame(self, trouble: Trouble, fault: Fault) -> Event:
        """What a failure tells the breaker."""
        if not trouble.doubtful:
            return trouble.event
        excused, self._record.suspicion = blame.excuse(self._record.suspicion, fault)
        return Event.NEUTRAL if excused else trouble.event

"""A storm's own books: every request with its leases and attempts, recent events, figures, and what broke.

Nothing here looks at the proxy; who does is in watch.py (all along) and verdicts.py (each answer).
"""

import asyncio
from collections import Counter, deque
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from fakes.storm.plan import Plan

# Enough to see how the last seconds came about; each is some hundred bytes.
RING_EVENTS = 4000
SHOWN_EVENTS = 40
# A loop that stood still for so long has made timers meet that should not: what is late then is nobody's fault.
STARVED_S = 0.1
NOTED_S = 0.3


class StormBroken(AssertionError):
    """A promise was broken; the message has everything that is known of it."""


@dataclass(slots=True, eq=False)
class Attempt:
    """One attempt as an engine saw it. `body` is what the engine wrote of the answer, framing taken off; `ending` says
    that it was about to end the answer well, `sent` that it has; `good` that the answer was the one asked for."""

    serial: int
    name: str
    url: str
    fate: str
    kills: int
    body: bytearray = field(default_factory=bytearray)
    status: int = 0
    ending: bool = False
    sent: bool = False
    good: bool = False
    open: bool = True
    killed: bool = False
    leased: bool = True  # when it arrived
    looks_unleased: int = 0


@dataclass(slots=True, eq=False)
class Held:
    """A lease of the proxy's, as it was seen to be opened."""

    lease: Any
    name: str
    weight: int
    looks_elsewhere: int = 0
    looks_settled: int = 0

    @property
    def open(self) -> bool:
        return self.lease.outcome is None


@dataclass(slots=True, eq=False)
class Record:
    """One request from its drawing to its last trace."""

    plan: Plan
    begun_s: float
    attempts: list[Attempt] = field(default_factory=list)
    leases: list[Held] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    headed: bool = False
    answers: int = 0
    outcome: str | None = None
    looks_over: int = 0
    looks_twice: int = 0

    @property
    def id(self) -> str:
        return self.plan.id

    def attempt(self, serial: int) -> Attempt | None:
        return next((each for each in self.attempts if each.serial == serial), None)


@dataclass
class Figures:
    """What a storm was, in numbers."""

    requests: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    failovers: int = 0
    replays: int = 0
    most_sends: int = 0
    reloads: int = 0
    reloads_refused: int = 0
    kills: int = 0
    questions: int = 0
    calm: int = 0
    calm_served: int = 0
    recoveries_s: list[float] = field(default_factory=list)
    returns_s: list[float] = field(default_factory=list)
    checks: int = 0
    looks: int = 0
    starved: int = 0
    lulls: int = 0
    lull_mib: list[int] = field(default_factory=list)
    growth_bytes: int = 0
    growth_objects: int = 0
    stormed_s: float = 0.0

    def summary(self) -> dict[str, Any]:
        """The same for JSON, the lists by their worst."""
        values = {name: dict(value) if isinstance(value, Counter) else value for name, value in vars(self).items()}
        recoveries, returns = values.pop("recoveries_s"), values.pop("returns_s")
        values["per_s"] = round(self.requests / self.stormed_s, 1) if self.stormed_s else 0.0
        values["worst_recovery_s"] = round(max(recoveries, default=0.0), 3)
        values["worst_return_s"] = round(max(returns, default=0.0), 3)
        values["recoveries"] = len(recoveries)
        return values


class Books:
    """Everything known. `broken` is set by the first breach; the storm stops then."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.figures = Figures()
        self.records: dict[str, Record] = {}
        self._past: dict[str, Record] = {}
        self._forgotten: deque[tuple[int, str]] = deque()
        self.ring: deque[tuple[float, str, str]] = deque(maxlen=RING_EVENTS)
        self.breach: StormBroken | None = None
        self.broken = asyncio.Event()
        self.closing = False
        self._began_s = monotonic()
        self._serials = 0
        self._starved: deque[float] = deque(maxlen=100)

    # ------------------------------------------------------------ what happens

    def begin(self, plan: Plan) -> Record:
        record = self.records[plan.id] = Record(plan, monotonic())
        self.note(plan.id, f"begins: {plan.sample.target} weight {plan.weight} {plan.conduct}, {plan.fates[:2]}")
        return record

    def finish(self, record: Record, outcome: str) -> None:
        """The client has its answer, or has left."""
        record.outcome = outcome
        self.figures.requests += outcome != "unsent"
        self.figures.outcomes[outcome] += 1
        self.note(record.id, f"over for its client: {outcome}")

    def retire(self, record: Record, until_look: int) -> None:
        """Nothing of the request is left; it is remembered for a while, for what may come late."""
        self._past[record.id] = self.records.pop(record.id)
        self._forgotten.append((until_look, record.id))
        while self._forgotten[0][0] < self.figures.looks:
            self._past.pop(self._forgotten.popleft()[1], None)

    def recall(self, request_id: str) -> Record | None:
        """A request that lives or is remembered; it lives from then on."""
        if request_id in self._past:
            self.records[request_id] = self._past.pop(request_id)
        return self.records.get(request_id)

    def next_serial(self) -> int:
        self._serials += 1
        return self._serials

    def starve(self, stood_s: float) -> None:
        """The loop has stood still for longer than it should."""
        if stood_s > NOTED_S:
            self.note("loop", f"stood still for {stood_s:.3f} s")
        self._starved.append(monotonic())
        self.figures.starved += 1

    def starved_since(self, begun_s: float) -> bool:
        """Whether the loop has stood still since then: time limits of the proxy may have struck the innocent."""
        return bool(self._starved) and self._starved[-1] >= begun_s

    # ------------------------------------------------------------ what is known

    def note(self, about: str, text: str) -> None:
        self.ring.append((monotonic() - self._began_s, about, text))

    def holds(self, good: object, promise: str, text: str, *about: str) -> bool:
        """Count one check of a promise; the first that fails stops the storm."""
        self.figures.checks += 1
        if not good and self.breach is None:
            self.breach = StormBroken(self._told(promise, text, about))
            self.broken.set()
        return bool(good)

    def check(self) -> None:
        if self.breach is not None:
            raise self.breach

    def _told(self, promise: str, text: str, about: tuple[str, ...]) -> str:
        now_s = monotonic() - self._began_s
        stage = [each for each in self.ring if not each[1].startswith("s")][-SHOWN_EVENTS:]
        parts = {
            "of it": [each for each in self.ring if each[1] in about],
            "of engines and operator, at last": stage,
            "of everybody, at last": list(self.ring)[-SHOWN_EVENTS:],
        }
        lines = [
            line
            for title, events in parts.items()
            for line in (f"  {title}:", *(f"  {at_s:9.3f} {who}: {what}" for at_s, who, what in events))
        ]
        head = f"seed {self.seed}, {now_s:.3f} s: broken promise: {promise}: {text} {' '.join(about)}"
        return "\n".join((head, f"  again: scripts/storm --seed {self.seed}", *lines))

"""A desk under closed-loop load on a LeapingLoop: minutes of traffic in a moment, and what it did.

The shapes of the load are endless iterators of how many are in flight at each step.
"""

import asyncio
import random
from collections import Counter, deque
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from proxy.dispatch import Assignment, BackendPlan, Desk, Plan
from proxy.model import ROLES, Change, ChangeKind, Outcome, Policy, Reason, Role, Traits
from proxy.routing.breaker import BreakerRules, Event
from proxy.routing.health import HealthRules
from proxy.routing.retries import RetryRules
from proxy.routing.rules import Rules

SPECULATIVE, BASELINE = ROLES
TEN_MINUTES_S = 600.0
STEP_S = 1.0
DWELL_S = 2.0


class Traffic:
    """A desk under closed-loop load: so many requests at a time, each of them for one step of the walk."""

    def __init__(self, **rules: Any) -> None:
        self.loop = asyncio.get_running_loop()
        backends = (BackendPlan(SPECULATIVE, "http://a"), BackendPlan(BASELINE, "http://b"))
        given = Rules(**{"policy": Policy.THRESHOLD, "min_dwell_s": DWELL_S, **rules})
        plan = Plan(backends, given, BreakerRules(), HealthRules(), RetryRules())
        self.desk = Desk(plan, self.loop.time)
        self.desk.on_change = self._changed
        self.running: deque[tuple[Assignment, Role]] = deque()
        self.went: Counter[Role] = Counter()
        self.reasons: Counter[Reason] = Counter()
        self.switched_at_s: list[float] = []
        self.most_on_speculative = 0

    def _changed(self, change: Change) -> None:
        if change.kind is ChangeKind.REGIME:
            self.switched_at_s.append(self.loop.time())

    def begin(self) -> None:
        place = self.desk.assign(Traits(), "id", "/v1/chat/completions")
        assert isinstance(place, Assignment)
        assert place.decision.role is not None
        self.running.append((place, place.decision.role))
        self.went[place.decision.role] += 1
        self.reasons[place.decision.reason] += 1
        self.most_on_speculative = max(self.most_on_speculative, self.in_flight(SPECULATIVE))

    def end(self) -> None:
        place, role = self.running.popleft()
        assert place.backend.role is role
        self.desk.judge(place, Event.SUCCESS)
        self.desk.settle(place, Outcome.FINISHED)

    def in_flight(self, role: Role) -> int:
        return self.desk.snapshot().of(role).in_flight

    async def walk(self, counts: Iterator[int], for_s: float = TEN_MINUTES_S) -> None:
        """Hold the next of `counts` in flight at each step; every request ends after a step, the oldest first."""
        ends_s = self.loop.time() + for_s
        while self.loop.time() < ends_s:
            wanted = next(counts)
            for _ in range(max(len(self.running), wanted)):
                if self.running and len(self.running) >= wanted:
                    self.end()
                if len(self.running) < wanted:
                    self.begin()
            self.check_books()
            await asyncio.sleep(STEP_S)

    def check_books(self) -> None:
        """Every request is counted where it was started, whatever the regime has become since."""
        held = Counter(role for _, role in self.running)
        assert {role: self.in_flight(role) for role in ROLES} == {role: held[role] for role in ROLES}

    @property
    def changes(self) -> int:
        return len(self.switched_at_s)

    def dwelt(self, dwell_s: float = DWELL_S) -> bool:
        """Whether the dwell lay between any two changes."""
        return all(later - earlier >= dwell_s for earlier, later in pairwise(self.switched_at_s))

    @property
    def share_of_speculative(self) -> float:
        return self.went[SPECULATIVE] / self.went.total()


def steps(*counts: int) -> Iterator[int]:
    """3, 4, 5, 4, 5, 4, 5 ...: the first once, the rest over and over."""
    first, *rest = counts
    yield first
    while True:
        yield from rest


def wave(low: int, high: int, half_s: float = 10.0) -> Iterator[int]:
    while True:
        for count in (low, high):
            for _ in range(int(half_s / STEP_S)):
                yield count


def noise(around: float, spread: float, seed: int = 5) -> Iterator[int]:
    chance = random.Random(seed)
    while True:
        yield round(around * chance.uniform(1 - spread, 1 + spread))

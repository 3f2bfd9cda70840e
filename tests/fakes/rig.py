"""The desk on a clock set by hand, with what it announced."""

from collections import Counter
from typing import Any

from proxy.dispatch import Assignment, BackendPlan, Desk, Plan
from proxy.model import ROLES, Change, ChangeKind, CircuitState, Outcome, Policy, Role, Traits
from proxy.routing.breaker import BreakerRules, Event
from proxy.routing.health import HealthRules
from proxy.routing.retries import RetryRules
from proxy.routing.rules import Rules

SPECULATIVE, BASELINE = ROLES
OPEN_S = 10.0
LINGER_S = 5.0


class Rig:
    """A desk on a clock set by hand, with what it announced."""

    def __init__(self, limits: tuple[int | None, int | None] = (None, None), **rules: Any) -> None:
        self.now_s = 1000.0
        self.changes: list[Change] = []
        self.rooms = 0
        self.desk = Desk(plan(limits, **rules), lambda: self.now_s)
        self.desk.on_change = self.changes.append
        self.desk.on_room = self._room

    def _room(self) -> None:
        self.rooms += 1

    def assign(self, weight: int = 1, **how: Any) -> Assignment:
        place = self.try_assign(weight, **how)
        assert place is not None
        return place

    def try_assign(self, weight: int = 1, asked: Role | None = None, **how: Any) -> Assignment | None:
        place = self.desk.assign(Traits(weight=weight, asked=asked), "id", "/v1/completions", **how)
        return place if isinstance(place, Assignment) else None

    def in_flight(self, role: Role) -> int:
        return self.desk.snapshot().of(role).in_flight

    def finish(self, place: Assignment, event: Event = Event.SUCCESS) -> None:
        self.desk.judge(place, event)
        self.desk.settle(place, Outcome.FAILED_BEFORE_COMMIT if event is Event.FAILURE else Outcome.FINISHED)

    def fail(self, role: Role, times: int) -> None:
        for _ in range(times):
            self.finish(self.assign(asked=role), Event.FAILURE)

    def open_circuit(self, role: Role) -> None:
        self.fail(role, 5)
        assert self.desk.backend(role).circuit.state is CircuitState.OPEN

    def kinds(self) -> Counter[ChangeKind]:
        return Counter(change.kind for change in self.changes)


def plan(
    limits: tuple[int | None, int | None] = (None, None),
    urls: tuple[str, str] = ("http://a", "http://b"),
    retries: RetryRules | None = None,
    linger_s: float = LINGER_S,
    **rules: Any,
) -> Plan:
    given = {"policy": Policy.OVERFLOW, "smoothing_s": 0.0, "allow_header": True, **rules}
    return Plan(
        backends=(BackendPlan(SPECULATIVE, urls[0], limits[0]), BackendPlan(BASELINE, urls[1], limits[1])),
        rules=Rules(**given),
        breaker=BreakerRules(max_failures=5, open_s=OPEN_S, max_probes=1),
        health=HealthRules(),
        retries=retries or RetryRules(),
        linger_s=linger_s,
    )

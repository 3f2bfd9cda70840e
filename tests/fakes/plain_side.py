"""One backend of the desk that is written the long way: see plain_desk.py."""

from math import exp2, inf

from fakes.rig import OPEN_S

from proxy.model import BackendLoad, CircuitState, Role
from proxy.routing.blackhole import HALF_LIFE_S
from proxy.routing.breaker import TABLE, BreakerRules, Circuit, Event
from proxy.routing.health import Health

BREAKER = BreakerRules(max_failures=5, open_s=OPEN_S, max_probes=1)


class Side:
    """One backend of the plain desk."""

    def __init__(self, role: Role, limit: int | None) -> None:
        self.role, self.operators = role, limit
        self.facts: int | None = None  # what the engine says that it runs at once, at start-up and later
        self.said: int | None = None
        self.draining = False
        self.leases: list[int] = []  # weights
        self.ghosts: list[tuple[float, int]] = []  # until when, and weights
        self.circuit, self.health = Circuit(), Health()
        self.failures: list[tuple[float, float]] = []  # the weight of them all after each, and when
        self.silent = False
        self.recovered_at_s: float | None = None
        self.cached: list[int] = []  # blocks, the least lately used first

    def holds(self, prefix: tuple[int, ...]) -> int:
        """Tokens of the beginning that is there."""
        there = 0
        while there < len(prefix) and prefix[there] in self.cached:
            there += 1
        return 512 * there

    def keep(self, prefix: tuple[int, ...], room_tokens: int) -> None:
        ends_first = prefix[::-1]
        self.cached = [block for block in self.cached if block not in prefix] + list(ends_first)
        self.cached = self.cached[max(0, len(self.cached) - room_tokens // 512) :]

    @property
    def limit(self) -> int | None:
        return self.operators or self.said or self.facts

    @property
    def in_flight(self) -> int:
        return sum(self.leases) + sum(weight for _, weight in self.ghosts)

    def failed(self, now_s: float) -> float:
        if not self.failures:
            return 0.0
        value, at_s = self.failures[-1]
        return value * exp2(-(now_s - at_s) / HALF_LIFE_S)

    def live(self, now_s: float) -> int:
        return sum(expiry_s > now_s for expiry_s in self.circuit.probes)

    def passes(self, now_s: float) -> bool:
        if self.circuit.state is CircuitState.OPEN:
            return now_s - self.circuit.since_s >= OPEN_S
        return self.circuit.state is CircuitState.CLOSED or self.live(now_s) < BREAKER.max_probes

    def load(self, now_s: float) -> BackendLoad:
        return BackendLoad(
            self.role,
            self.in_flight,
            self.limit,
            int(self.failed(now_s) + 0.5),
            self.health.up is not False and self.passes(now_s) and not self.draining,
            None if self.recovered_at_s is None else now_s - self.recovered_at_s,
            self.out(now_s),
            self.silent,
        )

    def out(self, now_s: float) -> str | None:
        """The first of what makes it not eligible."""
        words = {
            "draining": self.draining,
            "down": self.health.up is False,
            "circuit open": not self.passes(now_s),
        }
        return next((word for word, holds in words.items() if holds), None)

    def move(self, event: Event, now_s: float, *, probe: bool = False, sent_at_s: float = inf) -> None:
        late = sent_at_s < self.circuit.since_s
        if late or (probe and event is Event.NEUTRAL and sent_at_s + OPEN_S <= now_s):
            return
        row, before = TABLE[self.circuit.state, event], self.circuit.state
        self.circuit = (row.probe if probe else row.ordinary)(BREAKER, self.circuit, now_s)
        if self.circuit.state is CircuitState.CLOSED and before is not CircuitState.CLOSED:
            self.recovered_at_s = now_s
            self.cached = []


def held(load: BackendLoad, weight: int) -> int:
    return weight if load.max_in_flight is None else max(1, min(weight, load.max_in_flight))


def fits_in(load: BackendLoad, weight: int) -> bool:
    return load.max_in_flight is None or load.in_flight + held(load, weight) <= load.max_in_flight

"""What the proxy knows of one backend: its book, shelf, circuit, health and what its engine says of itself.

The rules that move circuit and health are pure and live in routing/; who may be chosen is decided there too.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from proxy.model import BackendLoad, CircuitState, EngineFacts, EngineLoad, Role
from proxy.routing import blackhole, breaker
from proxy.routing.blackhole import FailureWeight
from proxy.routing.breaker import BreakerRules, Circuit
from proxy.routing.health import Health
from proxy.routing.out import Out
from proxy.state.ledger import Book
from proxy.state.shelf import Shelf

# The share of a backend's limit that may count for clients who have left. What engines still do for such clients is a
# guess, and by leaving at once again and again one client could fill the count for everybody.
MAX_LINGERING = 0.25

_CLOSED = CircuitState.CLOSED
_NEVER_S = float("-inf")
_NOT_NOW_S = float("inf")


class Standing(NamedTuple):
    """What a decision asks of a backend beside its counts, and what hardly ever changes: the limit in force, and since
    when it is eligible without a look at the clock (monotonic seconds; infinity when it is not or is silent, minus
    infinity when it has never been away)."""

    max_in_flight: int | None
    since_s: float


@dataclass(slots=True)
class Backend:
    """One configured backend. Owned by the desk, which alone changes it.

    `limit` is the operator's max_in_flight (None: take the engine's own); `draining` is the operator's wish;
    `load_at_s` is the monotonic instant of the last engine poll, `recovered_at_s` that of the last return from being
    down or from an open circuit, `changed_at_s` that at which another engine than before was found there. `unheard`
    says that nothing has come from it since its latest probe was sent, `silent` that this lasts too long by now;
    `unheard_since_s` is when the first of such probes was sent, and `unanswered` how many of them in a row have had no
    answer within their limit; `stood_s` is the longest such silence that ended by itself.
    """

    role: Role
    url: str
    book: Book
    limit: int | None = None
    draining: bool = False
    circuit: Circuit = field(default_factory=Circuit)
    health: Health = field(default_factory=Health)
    failures: FailureWeight = field(default_factory=FailureWeight)
    facts: EngineFacts | None = None
    load: EngineLoad | None = None
    load_at_s: float | None = None
    recovered_at_s: float | None = None
    changed_at_s: float | None = None
    unheard: bool = False
    unheard_since_s: float = _NEVER_S
    unanswered: int = 0
    stood_s: float = 0.0
    silent: bool = False
    shelf: Shelf = field(default_factory=Shelf)
    known: Standing | None = field(default=None, init=False, repr=False, compare=False)
    """The last answer of `standing`, until any of the above changes."""

    def __setattr__(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)
        object.__setattr__(self, "known", None)

    def standing(self) -> Standing:
        """What decisions ask of this backend beside its counts; read `known` first."""
        since_s = _NEVER_S if self.recovered_at_s is None else self.recovered_at_s
        passes = self.circuit.state is _CLOSED and self.health.up is not False and not self.draining
        known = Standing(self.max_in_flight, since_s if passes and not self.silent else _NOT_NOW_S)
        object.__setattr__(self, "known", known)
        return known

    @property
    def gives_nothing(self) -> bool:
        """Whether it is silent; or requests wait there, its latest probes had no answer, and no byte of a generation
        has come since. One that is down is told as that."""
        health = self.health
        return bool(health.up and (self.silent or ((health.misses or health.doubtful) and self.book.requests)))

    @property
    def max_in_flight(self) -> int | None:
        """The limit in force: the operator's, else what the engine runs at once, else None."""
        if self.limit is not None:
            return self.limit
        if self.load is not None and self.load.max_running_requests:
            return self.load.max_running_requests
        return (self.facts.max_running_requests or None) if self.facts is not None else None

    @property
    def max_lingering(self) -> int | None:
        """The most sequences that may count for clients who have left; None where no limit is known."""
        limit = self.max_in_flight
        return None if limit is None else max(1, int(limit * MAX_LINGERING))

    def eligible(self, rules: BreakerRules, now_s: float) -> bool:
        """Healthy, circuit passing and not draining, all at once."""
        return self.out(rules, now_s) is None

    def out(self, rules: BreakerRules, now_s: float) -> Out | None:
        """Which of these says no."""
        if self.draining:
            return Out.DRAINING
        if self.health.up is False:
            return Out.DOWN
        passes = self.circuit.state is _CLOSED or breaker.admits(rules, self.circuit, now_s)
        return None if passes else Out.CIRCUIT_OPEN

    def view(self, rules: BreakerRules, now_s: float) -> BackendLoad:
        """This backend as a decision at `now_s` sees it."""
        self.book.expire(now_s)
        out = self.out(rules, now_s)
        return BackendLoad(
            self.role,
            self.book.in_flight,
            self.max_in_flight,
            blackhole.weigh(self.failures, now_s),
            out is None,
            None if self.recovered_at_s is None else now_s - self.recovered_at_s,
            out,
            self.silent,
        )

    def silence_s(self, now_s: float) -> float | None:
        """How long nothing has come from it, in seconds; None where that is not known to be too long."""
        return now_s - self.unheard_since_s if self.silent or self.unanswered else None

    def drift(self) -> int | None:
        """The engine's running and waiting sequences less our own count; None before the first poll.

        Above zero: traffic that goes round the proxy, or sequences whose client has left. Below: a stale poll.
        """
        return None if self.load is None else self.load.running + self.load.waiting - self.book.in_flight

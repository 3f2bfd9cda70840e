"""What the desk is given and what it gives: the rules it works by, and one attempt's decision with its lease."""

from dataclasses import dataclass
from typing import NamedTuple

from proxy.model import Decision, Role
from proxy.routing.breaker import BreakerRules
from proxy.routing.health import HealthRules
from proxy.routing.retries import RetryRules
from proxy.routing.rules import Rules
from proxy.state.backend import Backend
from proxy.state.ledger import Lease


@dataclass(frozen=True, slots=True)
class BackendPlan:
    """What the configuration says of one backend. A changed url is another backend, with a book of its own."""

    role: Role
    url: str
    max_in_flight: int | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """All rules the desk works by, and its two backends, speculative first; replaced as one by a reload."""

    backends: tuple[BackendPlan, BackendPlan]
    rules: Rules
    breaker: BreakerRules
    health: HealthRules
    retries: RetryRules
    linger_s: float = 5.0


class Assignment(NamedTuple):
    """One attempt's decision and the lease it holds; `probe` says that it tests a half-open circuit."""

    decision: Decision
    backend: Backend
    lease: Lease
    probe: bool

"""A desk by plain rules, with a clock that a test moves by hand."""

from dataclasses import dataclass

from proxy.dispatch import BackendPlan, Desk, Plan
from proxy.model import ROLES, Policy
from proxy.routing.breaker import BreakerRules
from proxy.routing.health import HealthRules
from proxy.routing.retries import RetryRules
from proxy.routing.rules import Rules


@dataclass
class Clock:
    now_s: float = 1000.0

    def __call__(self) -> float:
        return self.now_s


def plan(speculative: str = "http://a:1", baseline: str = "http://b:1") -> Plan:
    backends = (BackendPlan(ROLES[0], speculative), BackendPlan(ROLES[1], baseline))
    rules = Rules(policy=Policy.OVERFLOW)
    return Plan(backends, rules, BreakerRules(), HealthRules(), RetryRules())


def desk(clock: Clock | None = None, chosen: Plan | None = None) -> Desk:
    return Desk(chosen or plan(), clock or Clock())

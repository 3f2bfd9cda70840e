"""Whom a failure is held against: the backend it happened on, or the request itself.

A request that fails on both backends is the likely cause of both failures, and must not close the service to others.
When the retry budget is spent a failure is not tried on the other side; it is then taken for what the latest tried
one was. What a failure does to a circuit is not here (breaker.py), nor the budget (retries.py).
"""

from dataclasses import dataclass
from enum import StrEnum


class Fault(StrEnum):
    """What a second attempt on the other backend showed of the first one's failure."""

    BACKEND = "backend"  # the other backend served the request
    REQUEST = "request"  # the other one failed it as well, or called it wrong
    UNKNOWN = "unknown"  # nothing: the other one was busy or could not be reached, or the client left


@dataclass(frozen=True, slots=True)
class Suspicion:
    """`trials` are second attempts under way; `on_request` is what the last one that showed something showed."""

    trials: int = 0
    on_request: bool = False

    @property
    def spares(self) -> bool:
        """Whether a failure that was not tried on both sides counts for nothing: requests are suspected, or trials
        that will tell are still under way."""
        return self.on_request or self.trials > 0


def begin(suspicion: Suspicion) -> Suspicion:
    """After a failed request has been sent to the other backend."""
    return Suspicion(suspicion.trials + 1, suspicion.on_request)


def end(suspicion: Suspicion, fault: Fault) -> Suspicion:
    """After that attempt has shown `fault`."""
    on_request = suspicion.on_request if fault is Fault.UNKNOWN else fault is Fault.REQUEST
    return Suspicion(suspicion.trials - 1, on_request)

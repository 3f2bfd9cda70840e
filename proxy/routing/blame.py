"""Whom a failure is held against: the backend it happened on, or the request itself.

A request that fails on both backends is the likely cause of both failures, and must not close the service to others.
When the retry budget is spent a failure is not tried on the other side; it is then taken for what the latest tried
one was. What a failure does to a circuit is not here (breaker.py), nor the budget (retries.py).
"""

from dataclasses import dataclass
from enum import StrEnum

# Untried failures that one request shown to be poisonous excuses. At the usual budget of a tenth every tenth failure is
# tried; with fewer than ten a run of poison would be held against the backend between two trials, and with far more a
# backend that dies where nothing may be retried would be spared for long.
MAX_SPARED = 20


class Fault(StrEnum):
    """What a second attempt on the other backend showed of the first one's failure."""

    BACKEND = "backend"  # the other backend served the request
    REQUEST = "request"  # the other one failed it as well, or called it wrong
    UNKNOWN = "unknown"  # nothing: the other one was busy or could not be reached, or the client left


@dataclass(frozen=True, slots=True)
class Suspicion:
    """`trials` are second attempts under way; `spared` is how many more untried failures are held against requests,
    since the last trial that showed something showed that a request was to blame."""

    trials: int = 0
    spared: int = 0


def begin(suspicion: Suspicion) -> Suspicion:
    """After a failed request has been sent to the other backend."""
    return Suspicion(suspicion.trials + 1, suspicion.spared)


def end(suspicion: Suspicion, fault: Fault) -> Suspicion:
    """After that attempt has shown `fault`."""
    shown = {Fault.REQUEST: MAX_SPARED, Fault.BACKEND: 0, Fault.UNKNOWN: suspicion.spared}
    return Suspicion(suspicion.trials - 1, shown[fault])


def excuse(suspicion: Suspicion, fault: Fault) -> tuple[bool, Suspicion]:
    """Whether a failure counts for nothing, and the suspicion after it.

    One that was not tried on both sides does so while requests are suspected, or while trials that will tell are still
    under way; these use nothing up.
    """
    if fault is not Fault.UNKNOWN:
        return fault is Fault.REQUEST, suspicion
    if suspicion.trials:
        return True, suspicion
    return suspicion.spared > 0, Suspicion(0, max(0, suspicion.spared - 1))

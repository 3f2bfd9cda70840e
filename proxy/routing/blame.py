"""Whom a failure is held against: the backend it happened on, or the request itself.

A request that fails on both backends is the likely cause of both failures, and must not close the service to others.
When the retry budget is spent a failure is not tried on the other side; it is then taken for what the latest tried
one was. What a failure does to a circuit is not here (breaker.py), nor the budget (retries.py).
"""

from dataclasses import dataclass, replace
from enum import StrEnum

# Untried failures that one request shown to be poisonous excuses. At the usual budget of a tenth every tenth failure is
# tried; with fewer than ten a run of poison would be held against the backend between two trials, and with far more a
# backend that dies where nothing may be retried would be spared for long.
MAX_SPARED = 20
# The same while trials that will tell are under way: enough for as many bad requests as come within one answer, and few
# enough that a backend which fails everything is noticed though the other one takes long to answer its trials.
MAX_UNSURE = 40


class Fault(StrEnum):
    """What a second attempt on the other backend showed of the first one's failure."""

    BACKEND = "backend"  # the other backend served the request
    REQUEST = "request"  # the other one failed it as well, or called it wrong; or there can be no other for it
    UNKNOWN = "unknown"  # nothing: the other one was busy or could not be reached, or the client left


@dataclass(frozen=True, slots=True)
class Suspicion:
    """`trials` are second attempts under way; `spared` is how many more untried failures are held against requests,
    since the last trial that showed something showed that a request was to blame; `unsure` is how many more are while
    nothing has been shown yet."""

    trials: int = 0
    spared: int = 0
    unsure: int = MAX_UNSURE


def begin(suspicion: Suspicion) -> Suspicion:
    """After a failed request has been sent to the other backend."""
    return replace(suspicion, trials=suspicion.trials + 1)


def end(suspicion: Suspicion, fault: Fault) -> Suspicion:
    """After that attempt has shown `fault`."""
    trials = suspicion.trials - 1
    if fault is Fault.UNKNOWN:
        return replace(suspicion, trials=trials)
    return Suspicion(trials, MAX_SPARED if fault is Fault.REQUEST else 0)


def excuse(suspicion: Suspicion, fault: Fault) -> tuple[bool, Suspicion]:
    """Whether a failure counts for nothing, and the suspicion after it.

    One that was not tried on both sides does so while requests are suspected, or while trials that will tell are still
    under way: a limited number of times each.
    """
    if fault is not Fault.UNKNOWN:
        return fault is Fault.REQUEST, suspicion
    if suspicion.trials and suspicion.unsure:
        return True, replace(suspicion, unsure=suspicion.unsure - 1)
    return suspicion.spared > 0, replace(suspicion, spared=max(0, suspicion.spared - 1))

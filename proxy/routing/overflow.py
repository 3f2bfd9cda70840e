"""Policy `overflow`: speculative up to `leave_at` of its own sequences, the rest to baseline.

It has no memory, so no regime and no dwell (threshold.py), and it knows no measured speeds.
"""

from proxy.model import BASELINE, SPECULATIVE, BackendLoad, Reason, Role
from proxy.routing.rules import Rules

_ROOM, _OVERFLOW = Reason.ROOM, Reason.OVERFLOW


def fits(rules: Rules, load: BackendLoad, weight: int) -> bool:
    """Whether `load` stays within `leave_at` with `weight` sequences more; recent failures count as load.

    A request heavier than `leave_at` fits an empty backend, else it would never be speculated on however idle the
    backend is. A backend that is empty because it fails fast is not idle and gets no such exception.
    """
    busy = load.in_flight + load.recent_failures
    return busy + weight <= rules.leave_at or busy == 0


def prefer(rules: Rules, speculative: BackendLoad, weight: int) -> tuple[Role, Reason]:
    """The role that the policy wants for a request of `weight` sequences, and why: ROOM or OVERFLOW."""
    if fits(rules, speculative, weight):
        return SPECULATIVE, _ROOM
    return BASELINE, _OVERFLOW

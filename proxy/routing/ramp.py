"""The ramp: a backend that has just recovered takes its share again bit by bit, not a whole queue at once.

When a backend counts as recovered is not here (dispatch.py), nor what a full one means for a request (policy.py).
"""

from math import ceil

from proxy.model import BackendLoad, LoadSnapshot, Policy, Role
from proxy.routing.rules import Rules
from proxy.routing.silence import is_silent

# Where a backend without a known limit is ramped up to, in sequences: SGLang's own limit for a speculative instance is
# 48, vLLM's for any 256 or more. At the ramp's end it is unlimited anyway, so this only sets the slope.
GOAL_IF_UNLIMITED = 64


def is_on(rules: Rules, load: BackendLoad) -> bool:
    """Whether the backend came back less than `rules.ramp_s` ago."""
    return load.recovered_s is not None and load.recovered_s < rules.ramp_s


def admits(rules: Rules, load: BackendLoad, weight: int) -> bool:
    """Whether a recovering backend may take `weight` sequences more; always true of one that is not recovering.

    From one sequence up to its goal, in proportion to the time since it came back, over `rules.ramp_s`. An idle one
    takes any request: it must be seen at work again.
    """
    if load.recovered_s is None or not is_on(rules, load) or load.in_flight == 0:
        return True
    return load.in_flight + weight <= ceil(_goal(rules, load) * load.recovered_s / rules.ramp_s)


def holds_back(rules: Rules, snapshot: LoadSnapshot, role: Role, weight: int) -> bool:
    """Whether a backend still ramps up. Only beside one that serves in full: alone, or when both have come back, it
    takes what there is."""
    load = snapshot.of(role)
    if not is_on(rules, load):
        return False
    beside = snapshot.of(role.other)
    in_full = beside.eligible and not is_silent(snapshot, role.other) and not is_on(rules, beside)
    return in_full and not admits(rules, load, weight)


def _goal(rules: Rules, load: BackendLoad) -> int:
    """What the backend takes at the ramp's end: for the speculative one never more than `leave_at`, however many
    requests wait, where the policy keeps it to that."""
    limit = GOAL_IF_UNLIMITED if load.max_in_flight is None else load.max_in_flight
    kept = load.role is Role.SPECULATIVE and rules.effective_policy in (Policy.OVERFLOW, Policy.THRESHOLD)
    return min(limit, rules.leave_at) if kept else limit

"""Policy `threshold`: one favoured role at a time, switched on the smoothed total in flight with hysteresis and dwell.

Eligibility, room and rules that come before any policy are not here (policy.py).
"""

from math import exp

from proxy.model import BASELINE, SPECULATIVE, BackendLoad, Policy, Reason, Regime, Role
from proxy.routing import consolidate
from proxy.routing.demand import aged
from proxy.routing.overflow import fits
from proxy.routing.rules import Rules

# How near to a threshold counts as there, in sequences. A smoothed count nears a steady one for ever without reaching
# it, so with 0 a closed loop of exactly leave_at clients would never leave. From 0.5 on the two thresholds would touch
# when enter_at = leave_at - 1 and one count would satisfy both; 0.25 keeps half a sequence between them.
NEAR = 0.25

_NEVER_S = float("-inf")
_THRESHOLD, _REGIME = Policy.THRESHOLD, Reason.REGIME


def follow(rules: Rules, regime: Regime, in_flight: float, now_s: float) -> Regime:
    """`regime` with `in_flight` sequences held from `now_s` on, switched when its threshold is reached and the dwell
    has passed. Policy `consolidate` switches by its own rule (consolidate.py); the others only keep the smoothed count
    warm for a reload.

    `smoothed` first moves towards the count held since the last observation, by the time-weighted mean with time
    constant `smoothing_s`, so how often a steady count is observed makes no difference. The first observation sets it,
    and so does every one when `smoothing_s` is 0. Time that goes backwards counts as standing still.
    """
    role, since_s, smoothed, last_s, held, demand = regime
    smoothing_s = rules.smoothing_s
    if smoothing_s <= 0 or last_s == _NEVER_S:
        smoothed = float(in_flight)
    elif now_s > last_s:
        smoothed = held + (smoothed - held) * exp((last_s - now_s) / smoothing_s)
    if rules.by_curves:
        demand = aged(regime, now_s)
    if rules.effective_policy is _THRESHOLD:
        due = smoothed >= rules.leave_at - NEAR if role is SPECULATIVE else smoothed <= rules.enter_at + NEAR
        if due and now_s - since_s >= rules.min_dwell_s:
            role, since_s = role.other, now_s
    elif rules.paces is not None:
        demand, turns = consolidate.weighed(rules, regime, demand, smoothed, now_s)
        if turns:
            demand = consolidate.settled(rules, role, demand)
            role, since_s = role.other, now_s
    return Regime(role, since_s, smoothed, now_s if now_s > last_s else last_s, in_flight, demand)


def prefer(rules: Rules, regime: Regime, speculative: BackendLoad, weight: int) -> tuple[Role, Reason]:
    """The role that the regime favours (REGIME), or baseline while speculative is at `leave_at` (OVERFLOW).

    The second keeps a burst within the dwell or the smoothing from piling up on speculative; the regime stays.
    """
    if regime.role is SPECULATIVE and not fits(rules, speculative, weight):
        return BASELINE, Reason.OVERFLOW
    return regime.role, _REGIME

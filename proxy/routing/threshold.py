"""Policy `threshold`: one favoured role at a time, switched on the smoothed total in flight with hysteresis and dwell.

Eligibility, room and rules that come before any policy are not here (policy.py).
"""

from math import exp

from proxy.model import BASELINE, SPECULATIVE, BackendLoad, Reason, Regime, Role
from proxy.routing.overflow import fits
from proxy.routing.rules import Rules

# How near to a threshold counts as there, in sequences. A smoothed count nears a steady one for ever without reaching
# it, so with 0 a closed loop of exactly leave_at clients would never leave. From 0.5 on the two thresholds would touch
# when enter_at = leave_at - 1 and one count would satisfy both; 0.25 keeps half a sequence between them.
NEAR = 0.25

_NEVER_S = float("-inf")
_REGIME = Reason.REGIME


def observe(regime: Regime, in_flight: float, now_s: float, smoothing_s: float) -> Regime:
    """`regime` with `in_flight` sequences held from `now_s` on; its role is untouched.

    `smoothed` first moves towards the count held since the last observation, by the time-weighted mean with time
    constant `smoothing_s`, so how often a steady count is observed makes no difference. The first observation sets it,
    and so does every one when `smoothing_s` is 0. Time that goes backwards counts as standing still.
    """
    last_s = regime.smoothed_at_s
    if smoothing_s <= 0 or last_s == _NEVER_S:
        smoothed = float(in_flight)
    elif now_s > last_s:
        smoothed = regime.held + (regime.smoothed - regime.held) * exp((last_s - now_s) / smoothing_s)
    else:
        smoothed = regime.smoothed
    return Regime(regime.role, regime.since_s, smoothed, now_s if now_s > last_s else last_s, in_flight)


def advance(rules: Rules, regime: Regime, now_s: float) -> Regime:
    """The regime after a look at `smoothed`: the other role when its threshold is reached and the dwell has passed."""
    if regime.role is SPECULATIVE:
        due = regime.smoothed >= rules.leave_at - NEAR
    else:
        due = regime.smoothed <= rules.enter_at + NEAR
    if not due or now_s - regime.since_s < rules.min_dwell_s:
        return regime
    return Regime(regime.role.other, now_s, regime.smoothed, regime.smoothed_at_s, regime.held)


def prefer(rules: Rules, regime: Regime, speculative: BackendLoad, weight: int) -> tuple[Role, Reason]:
    """The role that the regime favours (REGIME), or baseline while speculative is at `leave_at` (OVERFLOW).

    The second keeps a burst within the dwell or the smoothing from piling up on speculative; the regime stays.
    """
    if regime.role is SPECULATIVE and not fits(rules, speculative, weight):
        return BASELINE, Reason.OVERFLOW
    return regime.role, _REGIME

"""What a short chain of drafts might give, by the speculation law and the baseline's own curve. Always a prediction.

The law itself is in law.py; here are its constants for a chain that nobody has run yet.
"""

from proxy.lab.calibration.advice.choices import Speeds
from proxy.lab.calibration.deciding.law import DRAFT_SHARE, Law
from proxy.lab.calibration.values import Arm
from proxy.lab.calibration.words import percent, speed
from proxy.routing.curves import SpeedCurve

# A chain 3/1/4: three drafted and the root.
VERIFIED = 4
# What published 3/1/4 chains gain per step, 2.0 to 2.3; on code more.
GAINED = 2.2
AT = (1, 4, 16)


def predicted(speeds: Speeds) -> tuple[str, dict[str, float]]:
    """What 3/1/4 would give at 1, 4 and 16 in flight, as a sentence and numbers; `gain` is the best over baseline.

    Concurrencies whose verified tokens lie beyond the measured baseline are left out.
    """
    curve = speeds.curves.get(Arm.BASELINE)
    if curve is None:
        return "What one would give cannot be predicted without the baseline's curve.", {}
    found = {b: chain_tok_s(curve, b) for b in AT if not curve.extrapolated(VERIFIED * b)}
    if not found:
        return "What one would give cannot be predicted: the baseline was not measured far enough.", {}
    now = {
        b: max(speeds.tok_s(arm, b) for arm in (Arm.SPECULATIVE, Arm.BASELINE) if arm in speeds.curves) for b in found
    }
    told = ", ".join(f"{speed(value)} tok/s at {b} in flight (today {speed(now[b])})" for b, value in found.items())
    numbers = {f"chain_at_{b}": value for b, value in found.items()}
    return (
        f"Predicted for 3/1/4, not measured: {told}; today's is that of the faster backend. Assumed are {GAINED} "
        f"tokens gained in a step, {percent(DRAFT_SHARE)} of a step of one sequence for drafting, and attention as "
        "cheap as in plain decoding."
    ), {**numbers, "gain": max(value / now[b] - 1 for b, value in found.items())}


def chain_tok_s(baseline: SpeedCurve, in_flight: int) -> float:
    """The law for a chain 3/1/4 at one number in flight, tok/s."""
    draft_s = DRAFT_SHARE * baseline.seconds_per_token(1)
    return Law(baseline, GAINED, VERIFIED, draft_s).tok_s(in_flight)

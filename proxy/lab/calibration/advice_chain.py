"""What a short chain of drafts might give, by the speculation law and the baseline's own curve. Always a prediction.

The law: with V tokens verified and `tau` gained per sequence and step, T(n) the time of a step over n tokens and d that
of drafting, X(b) = (tau / V) X_baseline(V b) T(V b) / (T(V b) + d), which is tau b / (T(V b) + d).
"""

from proxy.lab.calibration.choices import Speeds
from proxy.lab.calibration.values import Arm
from proxy.lab.calibration.words import percent, speed

# A chain 3/1/4: three drafted and the root.
VERIFIED = 4
# What published 3/1/4 chains gain per step, 2.0 to 2.3; on code more.
GAINED = 2.2
# Drafting costs about this share of a step with one sequence (published chains: 7 to 25 %).
DRAFTING = 0.15
AT = (1, 4, 16)


def predicted(speeds: Speeds) -> tuple[str, dict[str, float]]:
    """What 3/1/4 would give at 1, 4 and 16 in flight, as a sentence and numbers; `gain` is the best over baseline.

    Concurrencies whose verified tokens lie beyond the measured baseline are left out.
    """
    curve = speeds.curves.get(Arm.BASELINE)
    found = {b: chain_tok_s(speeds, b) for b in AT if curve is not None and not curve.extrapolated(VERIFIED * b)}
    if not found:
        return "What one would give cannot be predicted without the baseline's curve.", {}
    now = {
        b: max(speeds.tok_s(arm, b) for arm in (Arm.SPECULATIVE, Arm.BASELINE) if arm in speeds.curves) for b in found
    }
    told = ", ".join(f"{speed(value)} tok/s at {b} in flight (today {speed(now[b])})" for b, value in found.items())
    numbers = {f"chain_at_{b}": value for b, value in found.items()}
    return (
        f"Predicted for 3/1/4, not measured: {told}; today's is that of the faster backend. Assumed are {GAINED} "
        f"tokens gained in a step, {percent(DRAFTING)} of a step of one sequence for drafting, and attention as cheap "
        "as in plain decoding."
    ), {**numbers, "gain": max(value / now[b] - 1 for b, value in found.items())}


def chain_tok_s(speeds: Speeds, in_flight: int) -> float:
    """The law for a chain 3/1/4 at one number in flight, tok/s."""
    verified = VERIFIED * in_flight
    step_s = verified / speeds.tok_s(Arm.BASELINE, verified)
    drafting_s = DRAFTING / speeds.tok_s(Arm.BASELINE, 1)
    return GAINED * in_flight / (step_s + drafting_s)

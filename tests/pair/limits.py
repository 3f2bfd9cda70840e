"""The fixed numbers that the rules with numbers get: what an operator would take who has these curves. Pure."""

from dataclasses import dataclass

from proxy.lab.calibration.advice.choices import Speeds, best_overflow
from proxy.lab.calibration.values import Arm
from proxy.model import Placement, Role
from proxy.routing.curves import ContextCurves

# No number in flight reaches it: the speculative instance is never left.
NEVER_LEFT = 100_000


@dataclass(frozen=True, slots=True)
class Limits:
    """`crossing`: the number in flight from which the baseline is faster. `fixed`: the most requests that the
    speculative instance gets where one number decides, as HAProxy's `balance first` with `maxconn` has it."""

    crossing: int
    fixed: int


def limits(curves: ContextCurves, placement: Placement) -> Limits:
    """The numbers for one placement. Raises ValueError where one of the curves is missing.

    On shared GPUs both at once only cost, so the one number is the crossing; on GPUs of their own it is the one with
    which requests go fastest over doublings of the load.
    """
    speculative, baseline = (curves.of(role) for role in (Role.SPECULATIVE, Role.BASELINE))
    if speculative is None or baseline is None:
        raise ValueError("both instances need a curve; mend: calibrate for longer")
    most = int(min(speculative.points[-1].in_flight, baseline.points[-1].in_flight))
    faster = (n for n in range(1, most + 1) if baseline.tok_s(n) > speculative.tok_s(n))
    crossing = next(faster, NEVER_LEFT)
    if placement is Placement.SHARED:
        return Limits(crossing, crossing)
    speeds = Speeds({Arm.SPECULATIVE: speculative, Arm.BASELINE: baseline}, placement)
    doublings = [1 << place for place in range((2 * most).bit_length())]
    return Limits(crossing, best_overflow(speeds, doublings))


def peak_tok_s(curves: ContextCurves) -> float:
    """The most that either instance gives."""
    found = [curve for role in Role if (curve := curves.of(role)) is not None]
    return max(point.tok_s for curve in found for point in curve.points)

"""Curves that follow what is believed of both backends, a few at a time and only where that matters.

What is believed is in belief.py and who believes it in learner.py and harm.py.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import exp, log

from proxy.model import SPECULATIVE, Role
from proxy.routing.belief import Belief, Line, bin_middle, bin_of
from proxy.routing.curves import LEAST, MOST, ContextCurves, Curves, SpeedCurve, SpeedPoint

# A correction that moves no point by more than this moves next to no request: it is left until it is more.
MATERIAL = 0.015
# One by more than this is news: the backend is worth another look soon.
TELLING = 0.05

# Curves that are made anew in one turn, the most wrong ones first: their tables take a millisecond or two each, in
# which nothing else runs.
MOST_A_TURN = 2


class Correction:
    """`curves` as measured, and `corrected` as they are believed to be."""

    __slots__ = ("corrected", "curves")

    def __init__(self, curves: Curves) -> None:
        self.curves = self.corrected = curves

    def follow(
        self, believed: Mapping[Role, tuple[Belief, Line]], *, most: int = MOST_A_TURN, material: float = MATERIAL
    ) -> frozenset[Role]:
        """Correct the curves as far as that is material, `most` of them; whose are others by much."""
        moved: list[tuple[float, Role, int, SpeedCurve]] = []
        for role, (belief, line) in believed.items():
            for bucket, context in enumerate(self.curves.contexts):
                curve = context.of(role)
                if curve is not None:
                    now = corrected_curve(curve, belief, line, bucket) if line.places else curve
                    by = _moved(self.corrected.contexts[bucket].of(role), now)
                    if by > material:
                        moved.append((by, role, bucket, now))
        if moved:
            moved.sort(key=lambda each: -each[0])
            contexts = list(self.corrected.contexts)
            for _, role, bucket, curve in moved[:most]:
                contexts[bucket] = _with(contexts[bucket], role, curve)
            self.corrected = replace(self.corrected, contexts=tuple(contexts))
        return frozenset(role for by, role, _, _ in moved if by > TELLING)


def corrected_curve(curve: SpeedCurve, belief: Belief, line: Line, bucket: int) -> SpeedCurve:
    """A curve as it is believed to be, at its own points and where there is evidence.

    A step is never longer with fewer in flight: where nothing was seen a guess gives way to what was seen of more.
    """
    seen = {place.bin for place in belief.bins if place.bucket == bucket}
    points: list[SpeedPoint] = []
    shortest_s = float("inf")
    for n in sorted({point.in_flight for point in curve.points} | set(map(bin_middle, seen)), reverse=True):
        tok_s = curve.tok_s(n) * exp(-line.at(bucket, n))
        if bin_of(n) not in seen:
            tok_s = max(tok_s, n / shortest_s)
        tok_s = min(MOST, max(LEAST, tok_s))
        shortest_s = min(shortest_s, n / tok_s)
        points.append(SpeedPoint(n, tok_s))
    return SpeedCurve(tuple(reversed(points)))


def _moved(applied: SpeedCurve | None, now: SpeedCurve) -> float:
    """By how much a curve lies beside the one in force, as the largest |ln| at its points."""
    if applied is None:
        return 0.0
    return max(abs(log(now.tok_s(n) / applied.tok_s(n))) for n in (point.in_flight for point in now.points))


def _with(context: ContextCurves, role: Role, curve: SpeedCurve) -> ContextCurves:
    return replace(context, speculative=curve) if role is SPECULATIVE else replace(context, baseline=curve)

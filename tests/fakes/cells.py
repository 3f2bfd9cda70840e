"""Measurements as a stand would give them, from two speeds in plain formulas. No engine, no clock."""

import math
from collections.abc import Callable, Sequence
from random import Random

from proxy.lab.calibration.deciding.aim import Aim
from proxy.lab.calibration.deciding.plan import Step, next_step
from proxy.lab.calibration.values import Arm, ArmFacts, Cell, Measurement, Source, Span

Speed = Callable[[int], float]


def crossing_at(place: float) -> dict[Arm, Speed]:
    """Speculation 1.5 times as fast alone, even at `place`, slower above."""
    exponent = 0.6
    return {
        Arm.SPECULATIVE: lambda n: 150.0 * n ** (exponent - 0.405465 / math.log(place)),
        Arm.BASELINE: lambda n: 100.0 * n**exponent,
        Arm.ADAPTIVE: lambda n: 95.0 * n**exponent,
    }


def measured(cell: Cell, tok_s: float, **changes: object) -> Measurement:
    """One measurement that is usable unless told otherwise."""
    known: dict[str, object] = {"at": "2026-01-01T00:00:00Z", "window_s": 10.0, "requests": 8, "tokens": 10.0 * tok_s}
    known |= {"source": Source.MOMENTS, "gross_tok_s": tok_s, "decode_tok_s": tok_s, "spent_s": 15.0}
    return Measurement(cell=cell, **(known | changes))  # type: ignore[arg-type]


def facts(**changes: object) -> dict[Arm, ArmFacts]:
    """Three arms of one engine."""
    known: dict[str, object] = {"url": "http://127.0.0.1:1", "engine": "sglang", "model": "m", "version": "0.5.23"}
    return {arm: ArmFacts(arm=arm, **(known | changes)) for arm in Arm}  # type: ignore[arg-type]


class Bench:
    """Carries a plan out in no time: `noise` is the sigma of each cell in ln, `shape` may bend what a cell gives."""

    def __init__(self, speeds: dict[Arm, Speed], *, noise: float = 0.005, seed: int = 1) -> None:
        self.speeds = speeds
        self.noise = noise
        self.done: list[Measurement] = []
        self.steps: list[Step] = []
        self._rng = Random(seed)
        self.shape: Callable[[Cell, Measurement], Measurement] = lambda cell, measurement: measurement

    def measure(self, cell: Cell, span: Span) -> Measurement:
        """What one cell gives; it takes five seconds more than its window."""
        speed = self.speeds[cell.arm](cell.concurrency) * self._rng.lognormvariate(0.0, self.noise)
        window_s = span.window_s
        return self.shape(cell, measured(cell, speed, window_s=window_s, spent_s=window_s + 5.0))

    def carry_out(self, aim: Aim, past: Sequence[Measurement] = (), at_most: int = 2000) -> list[Measurement]:
        """Everything that a plan asks for, at most so many cells."""
        self.done = list(past)
        while len(self.done) < at_most:
            step = next_step(aim, self.done, sum(one.spent_s for one in self.done))
            if step is None:
                break
            self.steps.append(step)
            self.done.extend(self.measure(cell, step.span) for cell in step.cells)
        return self.done

"""Carries a plan out: asks what is next, has it measured, keeps it. What is next, plan.py and quick.py say."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from proxy.lab.calibration.deciding.aim import Aim
from proxy.lab.calibration.deciding.plan import Step, next_step
from proxy.lab.calibration.deciding.quick import next_quick_step
from proxy.lab.calibration.values import Arm, ArmFacts, Cell, Measurement, Span

# Cells in a row that cannot be used after which a run is given up: an engine is gone, or refuses all that it is asked.
HOPELESS = 6


class Stand(Protocol):
    """Where arms are measured: real engines over HTTP, or the engine model on a virtual clock."""

    async def facts(self) -> Mapping[Arm, ArmFacts]:
        """What each engine says of itself. Raises CrossoverError, which tells the mend, where one cannot be asked."""

    async def measure(self, cell: Cell, span: Span) -> Measurement:
        """Measure one cell. Nothing of ours is left on the engine when it returns, nor when it is cancelled."""

    async def rest(self) -> None:
        """Wait until nothing of ours is left on any engine."""

    def now_s(self) -> float:
        """The stand's clock, monotonic seconds."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a campaign has come, for a progress line. `step` is what is being measured, None before and after."""

    step: Step | None
    cell: Cell | None
    cells: int
    spent_s: float
    budget_s: float


class Campaign:
    """One run over a stand; `past` are the measurements of a run that was cut, which this one goes on."""

    def __init__(self, aim: Aim, stand: Stand, facts: Mapping[Arm, ArmFacts], past: Sequence[Measurement] = ()) -> None:
        self.aim = aim
        self.measurements = list(past)
        self.finished = False
        self.hopeless = False
        self._useless = 0
        self._stand = stand
        self._facts = facts
        self._began_s = stand.now_s()
        self._spent_before_s = sum(one.spent_s for one in past)
        self._step: Step | None = None
        self._cell: Cell | None = None

    @property
    def spent_s(self) -> float:
        """Seconds measured, those of the run that this one goes on included."""
        return self._spent_before_s + self._stand.now_s() - self._began_s

    def standing(self) -> Standing:
        """Where it stands."""
        return Standing(self._step, self._cell, len(self.measurements), self.spent_s, self.aim.budget_s)

    async def carry_out(self, keep: Callable[[Measurement], None]) -> None:
        """Measure until the plan has nothing more to ask, or it is `hopeless`; `keep` is given each measurement.

        Awaits; cancelled, it loses the cell in hand and no other.
        """
        while (step := self._next()) is not None:
            self._step = step
            for cell in step.cells:
                self._cell = cell
                measurement = await self._measure(cell, step.span)
                self.measurements.append(measurement)
                keep(measurement)
                if self._is_hopeless(measurement):
                    self.hopeless = True
                    return
        self._step = self._cell = None
        self.finished = True

    def _is_hopeless(self, measurement: Measurement) -> bool:
        self._useless = 0 if measurement.usable else self._useless + 1
        return self._useless >= HOPELESS

    async def _measure(self, cell: Cell, span: Span) -> Measurement:
        began_s = self._stand.now_s()
        measurement = await self._stand.measure(cell, span)
        return replace(measurement, spent_s=self._stand.now_s() - began_s)

    def _next(self) -> Step | None:
        if self.aim.quick:
            return next_quick_step(self.aim, self._facts, self.measurements, self.spent_s)
        return next_step(self.aim, self.measurements, self.spent_s)

"""Carries a plan out: asks what is next, has it measured, keeps it. What is next, plan.py and quick.py say."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from proxy.lab.calibration.deciding.aim import Aim
from proxy.lab.calibration.deciding.plan import Step, next_step
from proxy.lab.calibration.deciding.prefill import MAX_PAIRS, WITHIN_S, affordable, lengths, prefill
from proxy.lab.calibration.deciding.quick import next_quick_step
from proxy.lab.calibration.values import Arm, ArmFacts, Cell, FirstToken, Measurement, Prefill, Span

# Cells in a row that cannot be used after which a run is given up: an engine is gone, or refuses all that it is asked.
HOPELESS = 6


class Stand(Protocol):
    """Where arms are measured: real engines over HTTP, or the engine model on a virtual clock."""

    async def facts(self) -> Mapping[Arm, ArmFacts]:
        """What each engine says of itself. Raises CrossoverError, which tells the mend, where one cannot be asked."""

    async def measure(self, cell: Cell, span: Span) -> Measurement:
        """Measure one cell. Nothing of ours is left on the engine when it returns, nor when it is cancelled."""

    async def first_token(self, arm: Arm, prompt_tokens: int) -> FirstToken | None:
        """Ask one prompt of about so many tokens that no cache knows; None where no first token is seen of it."""

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
    """One run over a stand; `past` are the measurements of a run that was cut, which this one goes on, and `prefills`
    how fast its arms took prompts in."""

    def __init__(
        self,
        aim: Aim,
        stand: Stand,
        facts: Mapping[Arm, ArmFacts],
        past: Sequence[Measurement] = (),
        prefills: Sequence[Prefill] = (),
    ) -> None:
        self.aim = aim
        self.measurements = list(past)
        self.prefills = list(prefills)
        self.finished = False
        self.hopeless = False
        self._useless = 0
        self._stand = stand
        self._facts = facts
        self._began_s = stand.now_s()
        self._spent_before_s = sum(one.spent_s for one in past) + sum(one.spent_s for one in prefills)
        self._step: Step | None = None
        self._cell: Cell | None = None

    @property
    def spent_s(self) -> float:
        """Seconds measured, those of the run that this one goes on included."""
        return self._spent_before_s + self._stand.now_s() - self._began_s

    def standing(self) -> Standing:
        """Where it stands."""
        return Standing(self._step, self._cell, len(self.measurements), self.spent_s, self.aim.budget_s)

    async def carry_out(
        self,
        keep: Callable[[Measurement], None],
        keep_prefills: Callable[[Sequence[Prefill]], None] = lambda _: None,
    ) -> None:
        """Measure until the plan has nothing more to ask, or it is `hopeless`; `keep` is given each measurement, and
        `keep_prefills` those of prompts, which come first.

        Awaits; cancelled, it loses the cell in hand and no other.
        """
        if not self.prefills:
            self.prefills = await self._measured_prefills()
            keep_prefills(self.prefills)
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

    async def _measured_prefills(self) -> list[Prefill]:
        """How fast both backends take prompts in, bucket by bucket; one of which nothing is seen is left out."""
        measured = []
        for arm in (arm for arm in self.aim.arms if arm is not Arm.ADAPTIVE):
            for context_tokens in self.aim.contexts:
                began_s = self._stand.now_s()
                pairs = await self._pairs(arm, context_tokens)
                found = prefill(arm, context_tokens, pairs)
                if found is None:
                    break  # what fails on one length may cost as long on each
                measured.append(found._replace(spent_s=self._stand.now_s() - began_s))
        return measured

    async def _pairs(self, arm: Arm, context_tokens: int) -> list[tuple[FirstToken, FirstToken]]:
        pairs: list[tuple[FirstToken, FirstToken]] = []
        most = self._facts[arm].most_context_tokens if arm in self._facts else None
        short, long = lengths(context_tokens, most)
        first = await self._stand.first_token(arm, short)
        if first is None:
            return pairs
        known, (short, long) = short, affordable(context_tokens, short, long, first.ttft_s)
        # One for nothing: the first prompt of a length may wait for kernels.
        if long != known and await self._stand.first_token(arm, long) is None:
            return pairs
        ends_at_s = self._stand.now_s() + WITHIN_S
        while len(pairs) < MAX_PAIRS and self._stand.now_s() < ends_at_s:
            one, other = await self._stand.first_token(arm, short), await self._stand.first_token(arm, long)
            if one is None or other is None:
                break
            pairs.append((one, other))
        return pairs

    def _next(self) -> Step | None:
        if self.aim.quick:
            return next_quick_step(self.aim, self._facts, self.measurements, self.spent_s)
        return next_step(self.aim, self.measurements, self.spent_s)

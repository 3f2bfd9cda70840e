"""The stand that measures over HTTP: one engine at a time under a closed loop, each cell from idle to idle.

One cell is in cell_run.py; what is measured next is the plan's. Everything here lives in one event loop.
"""

import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from time import monotonic

from proxy.lab.calibration.stand.arm import ArmDesk
from proxy.lab.calibration.stand.arm_facts import facts_of
from proxy.lab.calibration.stand.cell_run import CellRun, Patience
from proxy.lab.calibration.stand.engine_word import ArmTarget
from proxy.lab.calibration.values import Arm, ArmFacts, Cell, Condition, FirstToken, Measurement, Span
from proxy.lab.loadcall import Clock, open_session
from proxy.lab.loadreport import Sample

__all__ = ["ArmTarget", "HttpStand", "Patience", "open_stand"]


# What a prompt is of makes no difference to how fast it is taken in.
_PLAIN = Condition(context_tokens=1024)

OnSample = Callable[[Cell, Sample], None]


class HttpStand:
    """Measures cells on engines behind HTTP. Not for several cells at once: they would share the machine's core."""

    def __init__(
        self, desks: Mapping[Arm, ArmDesk], *, patience: Patience, clock: Clock, on_sample: OnSample | None
    ) -> None:
        self._desks = desks
        self._on_sample = on_sample
        self._patience = patience
        self._clock = clock

    def now_s(self) -> float:
        """The clock that cells are timed by, monotonic seconds."""
        return self._clock()

    async def facts(self) -> Mapping[Arm, ArmFacts]:
        """What each arm runs; the model's name is learned here where none was given. Awaits.

        Raises BackendUnreachable or UpstreamError, which tell the mend.
        """
        return {arm: await facts_of(desk) for arm, desk in self._desks.items()}

    async def measure(self, cell: Cell, span: Span) -> Measurement:
        """Measure one cell. Awaits, for as long as the span and the first tokens take; cancelling it ends its load.

        Failed requests, strangers on the engine and queueing are in the measurement; nothing is raised for them.
        Raises UpstreamError where the model has to be learned first and cannot be.
        """
        desk = self._desks[cell.arm]
        if not desk.target.model:
            await facts_of(desk)
        run = CellRun(desk, cell, span, self._patience)
        measurement = await run.measure()
        if self._on_sample is not None:
            for sample in run.samples:
                self._on_sample(cell, sample)
        return measurement

    async def first_token(self, arm: Arm, prompt_tokens: int) -> FirstToken | None:
        """Ask one prompt alone that no cache knows; None where nothing is seen of its first token. Awaits."""
        desk = self._desks[arm]
        if not desk.target.model:
            await facts_of(desk)
        return await desk.first_token(_PLAIN, prompt_tokens)

    async def rest(self) -> None:
        """Wait until no engine has anything to do, or for as long as patience lasts. Awaits."""
        for desk in self._desks.values():
            await desk.until_idle(self._patience.idle_s)


@asynccontextmanager
async def open_stand(
    targets: Mapping[Arm, ArmTarget],
    *,
    patience: Patience | None = None,
    clock: Clock = monotonic,
    on_sample: OnSample | None = None,
    on_doubt: Callable[[str], None] = lambda _: None,
) -> AsyncIterator[HttpStand]:
    """A stand for these arms; its connections close with it. Nothing is asked yet. `on_sample` is told of every request
    of a cell once that is over, those that the window's end cut short included, and `on_doubt`, in a sentence, of what
    an engine tells that cannot be."""
    nonce = secrets.token_hex(4)
    async with open_session() as session:
        desks = {
            arm: ArmDesk(arm, target, session, nonce=nonce, clock=clock, on_doubt=on_doubt)
            for arm, target in targets.items()
        }
        yield HttpStand(desks, patience=patience or Patience(), clock=clock, on_sample=on_sample)

"""Runs an engine at the speed of the clock and hands what it emits to the requests. No HTTP here."""

import asyncio
from itertools import count
from math import inf

from proxy.lab.engine import Engine, Step
from proxy.lab.jobs import Job, as_sequence
from proxy.lab.observations import Observations

# A loop that fell behind by more than this (a stopped process, a busy machine) does not try to catch up: a burst of
# steps without pause would show clients a speed that no engine has. Below it, lost time is made good.
MAX_LAG_S = 0.25


class Gpus:
    """What steps run on, one at a time: of one engine, or of two that share them, whose steps alternate while both have
    some. Belongs to one event loop."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()  # first come first served, which is what makes steps alternate
        self._free_at_s = -inf

    async def take(self, now_s: float, *, rested: bool) -> float:
        """Wait for the turn; the instant from which it counts. `rested` says that the engine had nothing to do until
        `now_s`: where the other one had not either, its step begins now."""
        idle = rested and not self._turn.locked()
        await self._turn.acquire()
        return max(now_s, self._free_at_s) if idle else self._free_at_s

    def give_back(self, at_s: float) -> None:
        """The step is over, at that instant."""
        self._free_at_s = at_s
        self._turn.release()


class RealTime:
    """One engine, its jobs, and the loop that steps it. Everything happens on one event loop. `gpus` are its own unless
    they are given."""

    def __init__(self, engine: Engine, observations: Observations, gpus: Gpus | None = None) -> None:
        self.engine = engine
        self._observations = observations
        self._gpus = gpus or Gpus()
        self._jobs: dict[int, tuple[Job, int]] = {}
        self._ids = count(1)
        self._work = asyncio.Event()
        self._open = 0
        self.idle = asyncio.Event()
        self.idle.set()

    @property
    def open_sequences(self) -> int:
        """Sequences inside the engine, running or waiting."""
        return len(self._jobs)

    def clock(self) -> float:
        """Now, monotonic seconds."""
        return asyncio.get_running_loop().time()

    def submit(self, job: Job) -> bool:
        """Give all sequences of a job to the engine, or none: False when its queue is full."""
        job.ids = tuple(next(self._ids) for _ in job.choices)
        for sequence_id, choice in zip(job.ids, job.choices, strict=True):
            if not self.engine.submit(as_sequence(choice, job.answer.ask, sequence_id)):
                self._forget(job)
                return False
            self._jobs[sequence_id] = (job, choice.index)
        self._open += 1
        self.idle.clear()
        self._work.set()
        return True

    def withdraw(self, job: Job) -> None:
        """Give a submitted job back: what it still has in the engine is aborted at once."""
        self._forget(job)
        self._open -= 1
        if self._open == 0:
            self.idle.set()

    async def run(self) -> None:
        """Step for ever. Deadlines are absolute, so a sleep that took too long is made up by the next."""
        rested = True
        while True:
            if not self.engine.busy:
                self._work.clear()
                await self._work.wait()
                rested = True
            step = await self._stepped(rested=rested)
            rested = False
            now_s = self.clock()
            for sequence_id, cached in step.joined:
                self._note_cached(sequence_id, cached)
            for sequence_id, tokens, finished in step.emitted:
                self._deliver(sequence_id, tokens, finished, now_s)

    async def _stepped(self, *, rested: bool) -> Step:
        """One step, at its end."""
        deadline_s = await self._gpus.take(self.clock(), rested=rested)
        try:
            step = self.engine.step()
            deadline_s += step.duration_s
            await asyncio.sleep(max(0.0, deadline_s - self.clock()))
        finally:
            self._gpus.give_back(max(deadline_s, self.clock() - MAX_LAG_S))
        return step

    def _note_cached(self, sequence_id: int, tokens: int) -> None:
        held = self._jobs.get(sequence_id)
        if held is not None:
            held[0].choices[held[1]].cached_tokens = tokens

    def _deliver(self, sequence_id: int, tokens: int, finished: bool, now_s: float) -> None:
        held = self._jobs.get(sequence_id)
        if held is None:
            return  # Its client left while the step ran.
        job, index = held
        self._observations.tokens(job, tokens, now_s)
        if finished:
            del self._jobs[sequence_id]
        job.deliver(index, tokens, finished, now_s)
        if job.over.is_set():
            self._observations.finished(job, now_s)

    def _forget(self, job: Job) -> None:
        for sequence_id in job.ids:
            if self._jobs.pop(sequence_id, None) is not None:
                self.engine.abort(sequence_id)

"""Walking a load over its levels: when requests are sent, how many at once, and which window each level measures.

What one request is stands in lab/loadcall.py, the arithmetic in lab/loadreport.py, the command in lab/loadgen.py.
"""

import asyncio
import random
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import aiohttp

from proxy.lab.loadcall import Clock, Shape, Target, call
from proxy.lab.loadreport import Level, LevelSpec, Loop, Sample, Window, summarize
from proxy.lab.prompts import PromptKind, choose
from proxy.model import Role
from proxy.tasks import end, spawn

# A closed loop against a server that refuses at once would else be a flood; four tries a second still notice a mend.
_REST_AFTER_ERROR_S = 0.25


@dataclass(frozen=True, slots=True)
class Recipe:
    """How every level of a walk is driven.

    With `requests` None a level lasts `duration_s`: its load warms up for `warmup_s`, then the window opens, and the
    next level's load flows out of it without emptying, so that a proxy's memory (hysteresis) shows. With `requests` a
    level sends exactly that many, or fewer if `duration_s` is over first: it warms up, empties, sends them, and its
    window reaches to the last end. `nonce` makes every prompt's beginning unique; `asked` asks for one backend.
    """

    shape: Shape = field(default_factory=Shape)
    prompts: PromptKind = PromptKind.MIXED
    seed: int = 1
    nonce: str | None = None
    warmup_s: float = 2.0
    duration_s: float | None = 8.0
    requests: int | None = None
    asked: Role | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a walk stands, for somebody who watches: counts are of the whole walk, `done` is the level's, 0 to 1."""

    spec: LevelSpec | None
    asked: Role | None
    done: float
    in_flight: int
    whole: int
    failed: int


async def measure(session: aiohttp.ClientSession, target: Target, spec: LevelSpec, recipe: Recipe) -> Level:
    """One level on its own, from an empty start to an empty end. Awaits; failed requests are counted, not raised."""
    (level,) = await Walk(session, target, recipe).over([spec])
    return level


class Walk:
    """One walk over levels. Owns its requests in flight, which end with it, and the samples of those that ended."""

    def __init__(
        self, session: aiohttp.ClientSession, target: Target, recipe: Recipe, *, clock: Clock = monotonic
    ) -> None:
        self._session = session
        self._target = target
        self._recipe = recipe
        self._clock = clock
        self._samples: list[Sample] = []
        self._windows: list[tuple[LevelSpec, Window]] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._workers: dict[int, asyncio.Task[Any]] = {}
        self._pacer: asyncio.Task[None] | None = None
        self._wanted = 0
        self._budget: int | None = None
        self._sent = 0
        self._in_flight = 0
        self._spec: LevelSpec | None = None
        self._started_at_s = 0.0
        self._opened_at_s: float | None = None

    async def over(self, specs: Sequence[LevelSpec]) -> tuple[Level, ...]:
        """Walk the levels in order and wait for the last answers. Awaits; cancelling it ends what is in flight.

        Stops after a level when no request of the walk has succeeded: the rest would tell nothing more.
        """
        try:
            for place, spec in enumerate(specs):
                await self._pass(spec, place)
                if self._hopeless():
                    break
            self._spec = None
            self._hold(0)
            await self._empty()
        finally:
            await end(self._pacer, *self._tasks)
        return self.levels()

    def levels(self) -> tuple[Level, ...]:
        """The levels measured so far; one that is interrupted within its window counts up to now."""
        windows = list(self._windows)
        if self._spec is not None and self._opened_at_s is not None:
            windows.append((self._spec, Window(self._started_at_s, self._opened_at_s, self._clock())))
        return tuple(summarize(spec, self._samples, window, self._recipe.asked) for spec, window in windows)

    def progress(self) -> Progress:
        """Where the walk stands now."""
        failed = sum(sample.error is not None for sample in self._samples)
        return Progress(
            spec=self._spec,
            asked=self._recipe.asked,
            done=self._done(),
            in_flight=self._in_flight,
            whole=len(self._samples) - failed,
            failed=failed,
        )

    def _done(self) -> float:
        recipe = self._recipe
        if recipe.requests is None:
            whole_s = recipe.warmup_s + (recipe.duration_s or 0.0)
            return min(1.0, (self._clock() - self._started_at_s) / whole_s) if whole_s > 0 else 1.0
        return 0.0 if self._opened_at_s is None else 1.0 - max(0, self._budget or 0) / recipe.requests

    async def _pass(self, spec: LevelSpec, place: int) -> None:
        """One level: warm-up, then its window."""
        self._spec, self._started_at_s, self._opened_at_s = spec, self._clock(), None
        if self._recipe.requests is None:
            self._press(spec, place)
            await asyncio.sleep(self._recipe.warmup_s)
            self._opened_at_s = self._clock()
            await asyncio.sleep(self._recipe.duration_s or 0.0)
        else:
            await self._warm_up(spec, place)
            self._opened_at_s = self._clock()
            self._press(spec, place, self._recipe.requests)
            await self._spend()
        window = Window(self._started_at_s, self._opened_at_s, self._clock())
        self._windows.append((spec, window))
        self._opened_at_s = None
        await end(self._pacer)

    def _press(self, spec: LevelSpec, place: int, budget: int | None = None) -> None:
        """Bring the load to a level's strength; at most `budget` more requests are sent."""
        self._budget = budget
        if spec.loop is Loop.CLOSED:
            self._hold(int(spec.value))
        else:
            self._pacer = spawn(self._arrive(spec.value, place), name="load-arrivals")

    async def _warm_up(self, spec: LevelSpec, place: int) -> None:
        """Load for the warm-up's time, if there is one, and wait until nothing is left of it or of an earlier level."""
        if self._recipe.warmup_s > 0:
            self._press(spec, place)
            await asyncio.sleep(self._recipe.warmup_s)
            await end(self._pacer)
        self._budget = 0
        await self._empty()

    async def _spend(self) -> None:
        """Wait until the budget is spent and answered, or the level's time is over."""
        try:
            async with asyncio.timeout(self._recipe.duration_s):
                if self._pacer is not None:
                    await asyncio.wait([self._pacer])
                await self._empty()
        except TimeoutError:
            self._budget = 0

    def _hold(self, concurrency: int) -> None:
        """Have this many workers; those above finish the request they have."""
        self._wanted = concurrency
        for place in range(concurrency):
            if place not in self._workers or self._workers[place].done():
                self._workers[place] = self._start(self._work(place), f"load-{place}")

    async def _work(self, place: int) -> None:
        while place < self._wanted and self._take():
            if (await self._send()).error is not None:
                await asyncio.sleep(_REST_AFTER_ERROR_S)

    async def _arrive(self, rate: float, place: int) -> None:
        """Start requests with exponential gaps, by the schedule and not by the answers, `rate` a second."""
        chance = random.Random(f"{self._recipe.seed}/{place}/arrivals")
        due_at_s = self._clock()
        while self._take():
            due_at_s += chance.expovariate(rate)
            await asyncio.sleep(max(0.0, due_at_s - self._clock()))
            self._start(self._send(), "load-request")

    def _take(self) -> bool:
        """Whether one more request may be sent; it is then counted against the budget."""
        if self._budget is None:
            return True
        self._budget -= 1
        return self._budget >= 0

    async def _send(self) -> Sample:
        recipe = self._recipe
        messages = choose(recipe.prompts, recipe.seed, self._sent, recipe.nonce)
        self._sent += 1
        self._in_flight += 1
        try:
            sample = await call(
                self._session, self._target, recipe.shape, messages, asked=recipe.asked, clock=self._clock
            )
        finally:
            self._in_flight -= 1
        self._samples.append(sample)
        return sample

    def _start(self, coro: Coroutine[Any, Any, object], name: str) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = spawn(coro, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _empty(self) -> None:
        """Wait until no worker and no request is left. A fault of our own in one of them comes out here."""
        while self._tasks:
            done, _ = await asyncio.wait(self._tasks)
            for task in done:
                task.result()

    def _hopeless(self) -> bool:
        return bool(self._samples) and all(sample.error is not None for sample in self._samples)

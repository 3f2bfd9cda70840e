"""A closed loop: a fixed number of workers, each with one streamed request in flight and the next right after it.

What they ask is handed in; what comes back is in tally.py and in the samples here. When the window opens and closes is
decided in cell_run.py.
"""

import asyncio
from collections import Counter
from collections.abc import Callable

import aiohttp

from proxy.lab.calibration.stand.tally import Tally
from proxy.lab.loadcall import Answer, Clock, Shape, Target, call, sample_of
from proxy.lab.loadreport import Sample
from proxy.lab.prompts import Message
from proxy.tasks import end, spawn

# A server that refuses at once would else be flooded; four tries a second still notice that it has mended.
_REST_AFTER_ERROR_S = 0.25

# Failures in a row after which going on tells nothing more; where there are more workers, one of each.
_HOPELESS_AFTER = 3

Ask = Callable[[], list[Message]]
ShapeOf = Callable[[int], Shape]


class Crowd:
    """`size` workers against one engine. Owns their tasks and all that they saw.

    `lost` is set when nothing but failures comes back, often enough to believe it: the load is not the one asked for.

    The first request of worker i asks for the share (i + 1) / size of `max_tokens`: workers that start together would
    else end together for ever, and the engine would see waves instead of a steady load.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        target: Target,
        *,
        ask: Ask,
        shape_of: ShapeOf,
        max_tokens: int,
        size: int,
        clock: Clock,
    ) -> None:
        self.size = size
        self.tally = Tally()
        self.ended: list[Sample] = []
        self.cut_short: list[Sample] = []
        self.lost = asyncio.Event()
        self._session = session
        self._target = target
        self._ask = ask
        self._shape_of = shape_of
        self._max_tokens = max_tokens
        self._clock = clock
        self._running: dict[int, tuple[float, Answer]] = {}
        self._served: set[int] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._leaving = False
        self._failed = 0

    @property
    def begun(self) -> int:
        """Workers that have had a first token."""
        now = {place for place, (_, answer) in self._running.items() if answer.first_at_s is not None}
        return len(now | self._served)

    @property
    def errors(self) -> Counter[str]:
        """Failed requests by name."""
        return Counter(sample.error for sample in self.ended if sample.error is not None)

    def start(self) -> None:
        """Send the first request of every worker."""
        self._tasks = [spawn(self._work(place), name=f"calibrate-{place}") for place in range(self.size)]

    async def finish(self, within_s: float) -> None:
        """Send nothing new and wait for the answers that run, at most `within_s`. Awaits."""
        self._leaving = True
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=within_s)

    async def stop(self) -> None:
        """End at once: what still runs is cut by closing its connection, and kept as cut short. Awaits."""
        self._leaving = True
        running = list(self._running.values())
        now_s = self._clock()
        await end(*self._tasks)
        self.cut_short += [sample_of(answer, sent_at_s, now_s) for sent_at_s, answer in running]

    async def _work(self, place: int) -> None:
        share = -(-self._max_tokens * (place + 1) // self.size)
        while not self._leaving:
            sample = await self._send(place, self._shape_of(max(1, share)))
            share = self._max_tokens
            if sample.error is not None:
                await asyncio.sleep(_REST_AFTER_ERROR_S)

    async def _send(self, place: int, shape: Shape) -> Sample:
        answer = Answer(stream=True, watch=self.tally)
        self._running[place] = (self._clock(), answer)
        try:
            sample = await call(self._session, self._target, shape, self._ask(), answer=answer, clock=self._clock)
        finally:
            del self._running[place]
        if sample.first_at_s is not None:
            self._served.add(place)
        self.ended.append(sample)
        self._notice_loss(sample)
        return sample

    def _notice_loss(self, sample: Sample) -> None:
        self._failed = 0 if sample.error is None else self._failed + 1
        if self._failed >= max(_HOPELESS_AFTER, self.size):
            self.lost.set()

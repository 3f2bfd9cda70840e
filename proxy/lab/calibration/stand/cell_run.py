"""One cell from an idle engine to an idle engine: load, first tokens, settling, the window, and what it gave.

The load itself is in crowd.py, the arithmetic in counting.py, prompts and connections in arm.py.
"""

import asyncio
from contextlib import suppress
from datetime import UTC, datetime
from time import process_time
from typing import NamedTuple, TypedDict

from proxy.lab.calibration.stand import counting
from proxy.lab.calibration.stand.arm import ArmDesk
from proxy.lab.calibration.stand.counting import Mark
from proxy.lab.calibration.stand.crowd import Crowd
from proxy.lab.calibration.stand.engine_word import Reading
from proxy.lab.calibration.values import Cell, Measurement, Prefix, Quantiles, Source, Span
from proxy.lab.loadreport import Sample, Window

# While the crowd's first tokens are waited for: often enough not to make a short cell longer.
_RAMP_LOOK_S = 0.05

# Looks at a full engine with a queue before it is believed that no more will run.
_FULL_LOOKS = 3

# How often an engine is asked for moments that have moved: it publishes them every fifteen steps, and a window's edge
# is known as exactly as this.
_FRESH_LOOK_S = 0.02

# The rate of an answer that was cut short is chance until it has some tokens.
_MANY_TOKENS = 16

SILENT = "silent"
"""The error of requests that were taken and got no token."""

UNCOUNTED = "uncounted"
"""The error of requests that were answered by an engine that counts its tokens nowhere."""


class Patience(NamedTuple):
    """How long things are waited for, seconds, since nothing may be waited for without end.

    `idle_s`: an engine that should be idle. `begin_s`: all first tokens; `stalled_s`: the next first token, after which
    an engine is taken to queue. `fresh_s`: an engine's moments to move. `tail_s`: answers that run on after the window,
    where only they tell how long they were. `look_s`: between two looks at the load.
    """

    idle_s: float = 10.0
    begin_s: float = 600.0
    stalled_s: float = 20.0
    fresh_s: float = 3.0
    tail_s: float = 120.0
    look_s: float = 0.5


class CellRun:
    """Measures one cell. Made anew for each."""

    def __init__(self, desk: ArmDesk, cell: Cell, span: Span, patience: Patience) -> None:
        self._desk = desk
        self._cell = cell
        self._span = span
        self._patience = patience
        self._clock = desk.clock
        self._started_at_s = desk.clock()
        self._looks: list[Reading] = []
        self._strangers = 0
        self.samples: tuple[Sample, ...] = ()

    async def measure(self) -> Measurement:
        """Run the cell. Awaits; whatever fails is in the measurement. Cancelling it ends its load."""
        desk, condition = self._desk, self._cell.condition
        self._strangers = await desk.until_idle(self._patience.idle_s)
        if await desk.learn(condition) and condition.prefix is Prefix.WARM:
            await desk.warm(condition)
        crowd = Crowd(
            desk.session,
            desk.target,
            ask=desk.asking(condition),
            shape_of=lambda tokens: desk.shape(condition, tokens),
            max_tokens=condition.max_tokens,
            size=self._cell.concurrency,
            clock=self._clock,
        )
        try:
            crowd.start()
            begun = await self._begin(crowd)
            await self._pass(crowd, self._span.settle_s)
            measurement = await self._window(crowd, begun=begun)
        finally:
            await crowd.stop()
        desk.note(condition, measurement.kv_use)
        if not self._strangers:
            await desk.until_idle(self._patience.idle_s)
        return measurement

    # ------------------------------------------------------------------ before the window

    async def _begin(self, crowd: Crowd) -> bool:
        """Wait until every worker had a first token, or the engine runs as many as it will; whether all had."""
        begun, moved_at_s, full = 0, self._clock(), 0
        ends_at_s, look_at_s = moved_at_s + self._patience.begin_s, moved_at_s + self._patience.look_s
        while begun < crowd.size and full < _FULL_LOOKS and not crowd.lost.is_set():
            await asyncio.sleep(_RAMP_LOOK_S)
            now_s = self._clock()
            if crowd.begun > begun:
                begun, moved_at_s = crowd.begun, now_s
            if now_s >= ends_at_s or now_s - moved_at_s >= self._patience.stalled_s:
                break
            if now_s >= look_at_s:
                full = full + 1 if await self._is_full() else 0
                look_at_s = now_s + self._patience.look_s
        return begun >= crowd.size

    async def _is_full(self) -> bool:
        reading = await self._desk.word.read()
        return reading is not None and reading.waiting > 0 and reading.at_limit

    async def _pass(self, crowd: Crowd, seconds: float) -> None:
        """Let time go by, unless nothing but failures comes."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await crowd.lost.wait()

    # ------------------------------------------------------------------ the window

    async def _window(self, crowd: Crowd, *, begun: bool) -> Measurement:
        begin = await self._mark(crowd)
        at, cpu_s = datetime.now(UTC).isoformat(timespec="milliseconds"), process_time()
        crowd.tally.counts = True
        ends_at_s = begin.at_s + self._span.window_s
        while (left_s := ends_at_s - self._clock()) > 0 and not crowd.lost.is_set():
            await self._pass(crowd, min(left_s, self._patience.look_s))
            reading = await self._desk.word.read()
            if reading is not None:
                self._looks.append(reading)
        end = await self._mark(crowd)
        crowd.tally.counts = False
        cpu_s = process_time() - cpu_s
        if end.seen.untold > begin.seen.untold:
            await crowd.finish(self._patience.tail_s)
        await crowd.stop()
        self.samples = (*crowd.ended, *crowd.cut_short)
        return self._measurement(crowd, begin, end, at=at, cpu_s=cpu_s, begun=begun)

    async def _mark(self, crowd: Crowd) -> Mark:
        """One end of the window, just after the engine told something new."""
        counters = await self._desk.word.counters()
        reading = await self._fresh(crowd)
        return Mark(self._clock(), reading, counters, crowd.tally.seen())

    async def _fresh(self, crowd: Crowd) -> Reading | None:
        first = reading = await self._desk.word.read()
        ends_at_s = self._clock() + self._patience.fresh_s
        while reading is not None and reading.moments is not None and not crowd.lost.is_set():
            if first is None or reading.moments != first.moments or self._clock() >= ends_at_s:
                break
            await asyncio.sleep(_FRESH_LOOK_S)
            reading = await self._desk.word.read()
        return reading

    # ------------------------------------------------------------------ what it gave

    def _measurement(self, crowd: Crowd, begin: Mark, end: Mark, *, at: str, cpu_s: float, begun: bool) -> Measurement:
        size, window_s = self._cell.concurrency, max(end.at_s - begin.at_s, 1e-9)
        window = Window(self._started_at_s, begin.at_s, end.at_s)
        decoded = counting.decoding(begin, end, size)
        present = [one for one in (*crowd.ended, *crowd.cut_short) if _ran_in(one, window)]
        whole = [one for one in crowd.ended if one.error is None and window.holds(one.ended_at_s)]
        counted = counting.count(begin, end, present)
        tokens = counted.tokens if counted is not None else decoded.generated if decoded is not None else 0.0
        source = Source.MOMENTS if decoded is not None else counted.source if counted is not None else Source.SPREAD
        strange = counting.is_disturbed(self._looks, size) or counting.exceeds(begin, end, decoded, counted, size)
        return Measurement(
            cell=self._cell,
            at=at,
            window_s=window_s,
            requests=len(whole),
            tokens=tokens,
            source=source,
            gross_tok_s=tokens / window_s,
            decode_tok_s=None if decoded is None else decoded.tok_s,
            batch=counting.mean_running(self._looks) if decoded is None else decoded.batch,
            tokens_per_step=None if decoded is None else decoded.tokens_per_step,
            accept_length=counting.accept_length(begin, end),
            kv_use=counting.mean_kv_use(self._looks),
            cache_hit_rate=counting.cache_hit_rate(begin, end, present),
            **_of_requests(present, whole, window, size),
            chunk_gap_p99_s=counting.top_hundredth(crowd.tally.gaps),
            queued=not begun or counting.is_queued(self._looks, decoded, size),
            disturbed=self._strangers > 0 or strange,
            errors=_errors(crowd, tokens, answered=end.seen.chunks > begin.seen.chunks),
            client_cpu=cpu_s / window_s,
            spent_s=self._clock() - self._started_at_s,
        )


class _OfRequests(TypedDict):
    prompt_tokens: float | None
    ttft_s: Quantiles | None
    tpot_s: Quantiles | None
    request_tok_s: Quantiles | None


def _of_requests(present: list[Sample], whole: list[Sample], window: Window, size: int) -> _OfRequests:
    """What single requests show: those that ended in the window, where they are enough, else all that ran in it."""
    ran = whole if len(whole) >= size else [one for one in present if (one.completion_tokens or 0) >= _MANY_TOKENS]
    prompts = [one.prompt_tokens for one in present if one.prompt_tokens is not None]
    return {
        "prompt_tokens": sum(prompts) / len(prompts) if prompts else None,
        "ttft_s": counting.quantiles(one.ttft_s for one in present if _began_in(one, window)),
        "tpot_s": counting.quantiles(one.tpot_s for one in ran),
        "request_tok_s": counting.quantiles(one.tokens_per_s for one in ran),
    }


def _errors(crowd: Crowd, tokens: float, *, answered: bool) -> dict[str, int]:
    """Failed requests by name; an engine that takes requests and answers or counts none of them fails them all."""
    errors = crowd.errors
    return dict(errors) if errors or tokens else {UNCOUNTED if answered else SILENT: crowd.size}


def _ran_in(sample: Sample, window: Window) -> bool:
    return sample.error is None and window.overlap_s(sample.sent_at_s, sample.ended_at_s) > 0


def _began_in(sample: Sample, window: Window) -> bool:
    return sample.first_at_s is not None and window.holds(sample.first_at_s)

"""A continuous-batching engine as a model: sequences in, steps out. No clock, no sockets, no text.

Chance comes from a seeded generator and time is an argument, so the same run can be had on a virtual clock.
"""

import math
from dataclasses import dataclass
from itertools import repeat
from random import Random

from proxy.lab.acceptance import Acceptance
from proxy.lab.adaptive import Pause
from proxy.lab.prefix_cache import BLOCK_TOKENS, PrefixCache
from proxy.lab.step_time import StepTime
from proxy.model import Role

# What real engines resolve when nobody sets the flag: 48 as soon as speculation is on, thousands without it.
MAX_RUNNING_REQUESTS = {Role.SPECULATIVE: 48, Role.BASELINE: 2048}

# KV pool published for one 1T-parameter model on eight 96 GB cards: the drafter's weights and KV cost a fifth.
KV_TOKENS = {Role.SPECULATIVE: 343_664, Role.BASELINE: 437_264}

# An engine reserves room for at most this much output at admission and trusts that most answers are shorter.
MAX_RESERVED_OUTPUT = 4096

# Decode steps that one reading of the throughput gauge spans, as in the engine's own decode log.
GAUGE_STEPS = 40


@dataclass(frozen=True, slots=True)
class Sequence:
    """One sequence to generate.

    `length` is the number of tokens it will have, `max_tokens` what was asked for (what the KV pool reserves), both
    at least 1. `blocks` are the prompt's prefix fingerprints, one for each full block of 512 tokens.
    """

    id: int
    prompt_tokens: int
    length: int
    max_tokens: int
    blocks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """What bounds an engine.

    `max_queued_requests` None means an endless queue. `prefill_tokens_per_s` is R: q uncached tokens add q/R seconds
    to the step that carries them, at most `chunk_tokens` a step. `time_scale` multiplies every duration (0.25 is four
    times faster than life). `jitter` is the sigma of the log-normal noise on step times.
    """

    max_running_requests: int
    kv_tokens: int
    max_queued_requests: int | None = None
    prefill_tokens_per_s: float = 8000.0
    chunk_tokens: int = 8192
    time_scale: float = 1.0
    jitter: float = 0.03


@dataclass(frozen=True, slots=True)
class Step:
    """One step: how long it takes, and what it yields at its end as (sequence id, new tokens, finished).

    `joined` are the sequences whose prompt was filled in this step, as (sequence id, prompt tokens found cached).
    """

    duration_s: float
    emitted: list[tuple[int, int, bool]]
    joined: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class EngineBooks:
    """An engine's counts at one instant; totals are since its start.

    `moments` are the cumulative decode moments (steps, sum b, sum t_us, sum b*b, sum b*t_us, sum generated) of steps
    that followed another one without a prefill between them, as SGLang 0.5.23 tells them. `throughput` is output tok/s
    over the last steps; `accept_length` is a lifetime mean (0 without speculation); `drafting` is False while an engine
    that could speculate does not.
    """

    running: int
    waiting: int
    waiting_uncached_tokens: int
    used_tokens: int
    cached_room_tokens: int
    context_tokens: int
    prompt_tokens: int
    cached_tokens: int
    prefill_tokens: int
    prefill_busy_us: int
    generated_tokens: int
    verify_calls: int
    finished: int
    aborted: int
    rejected: int
    throughput: float
    accept_length: float
    moments: tuple[float, ...]
    drafting: bool = False


@dataclass(slots=True)
class _Slot:
    """A sequence that was admitted. It has `reserved` tokens for itself and uses `shared` blocks of its prefix."""

    sequence: Sequence
    left: int
    unfilled: int
    cached: int
    reserved: int
    context: int
    shared: int


class Engine:
    """Sequences wait first in first out, are admitted while there is room, prefilled in chunks, and decoded together.

    `acceptance` None is the baseline: exactly one token per sequence and step. With `pause` an engine that speculates
    goes without where that is faster. The owner calls `step` at the end of the step before; a sequence aborted in
    between yields nothing more.
    """

    def __init__(
        self,
        step_time: StepTime,
        limits: EngineLimits,
        rng: Random,
        acceptance: Acceptance | None = None,
        pause: Pause | None = None,
    ) -> None:
        self.limits = limits
        self._step_time = step_time
        self._rng = rng
        self._acceptance = acceptance
        self._pause = pause
        self._drafting = acceptance is not None
        self._waiting: dict[int, Sequence] = {}
        self._filling: dict[int, _Slot] = {}
        self._running: dict[int, _Slot] = {}
        self._cache = PrefixCache()
        self._reserved = self._context = 0
        self._prompt_tokens = self._cached_tokens = self._prefill_tokens = 0
        self._prefill_ms = 0.0
        self._generated = self._verify_calls = 0
        self._finished = self._aborted = self._rejected = 0
        self._moments = [0.0] * 6
        self._gauge = (0, 0.0, 0)
        self._throughput = 0.0

    @property
    def busy(self) -> bool:
        """Whether a step would have anything to do."""
        return bool(self._running or self._filling or self._waiting)

    def submit(self, sequence: Sequence) -> bool:
        """Put a sequence into the queue; False when the queue is at its limit. The id must be new."""
        limit = self.limits.max_queued_requests
        if limit is not None and len(self._waiting) >= limit and not self._takes_at_once(sequence):
            self._rejected += 1
            return False
        self._waiting[sequence.id] = sequence
        return True

    def abort(self, sequence_id: int) -> bool:
        """Forget a sequence wherever it is and free its room; False when it is not (or no longer) here."""
        if self._waiting.pop(sequence_id, None) is None and not self._leave(sequence_id):
            return False
        self._aborted += 1
        return True

    def step(self) -> Step:
        """Do one step. One with nothing to do takes no time."""
        self._admit()
        prefill_ms, joined = self._prefill()
        batch = len(self._running)
        if batch == 0:
            return Step(prefill_ms / 1000.0, [], joined)
        decode_ms = self._choose(batch, self._context / batch) * self._noise() * self.limits.time_scale
        emitted, count = self._decode(batch)
        self._record(batch, decode_ms, count, after_prefill=prefill_ms > 0.0)
        return Step((prefill_ms + decode_ms) / 1000.0, emitted, joined)

    def books(self) -> EngineBooks:
        """The counts of now."""
        verified = self._verify_calls
        return EngineBooks(
            running=len(self._running),
            waiting=len(self._waiting),
            waiting_uncached_tokens=sum(sequence.prompt_tokens for sequence in self._waiting.values()),
            used_tokens=self._context + sum(slot.context for slot in self._filling.values()),
            cached_room_tokens=self._cache.tokens,
            context_tokens=self._context,
            prompt_tokens=self._prompt_tokens,
            cached_tokens=self._cached_tokens,
            prefill_tokens=self._prefill_tokens,
            prefill_busy_us=round(self._prefill_ms * 1000),
            generated_tokens=self._generated,
            verify_calls=verified,
            finished=self._finished,
            aborted=self._aborted,
            rejected=self._rejected,
            throughput=self._throughput if self._running else 0.0,
            accept_length=self._generated / verified if verified else 0.0,
            moments=tuple(self._moments),
            drafting=self._drafting,
        )

    # ------------------------------------------------------------------ admission

    def _takes_at_once(self, sequence: Sequence) -> bool:
        return not self._waiting and self._has_room(sequence)

    def _has_room(self, sequence: Sequence) -> bool:
        admitted = len(self._running) + len(self._filling)
        if admitted >= self.limits.max_running_requests:
            return False
        # A sequence larger than the whole pool runs alone, so that it cannot block the queue for ever.
        return admitted == 0 or self._reserved + self._needs(sequence) <= self.limits.kv_tokens

    def _needs(self, sequence: Sequence) -> int:
        """What must not be let go of for it, and what it reserves: of its prompt only what is not cached."""
        cached = self._cache.held(sequence.blocks)
        in_use = self._cache.in_use(sequence.blocks[: cached // BLOCK_TOKENS])
        return in_use + reservation(sequence.prompt_tokens - cached, sequence.max_tokens)

    def _admit(self) -> None:
        while self._waiting:
            sequence = next(iter(self._waiting.values()))
            if not self._has_room(sequence):
                return
            del self._waiting[sequence.id]
            self._take(sequence)

    def _take(self, sequence: Sequence) -> None:
        # The last prompt token is always computed: its output is the first token.
        held = self._cache.held(sequence.blocks)
        cached, shared = min(held, max(0, sequence.prompt_tokens - 1)), held // BLOCK_TOKENS
        self._cache.use(sequence.blocks[:shared])
        reserved = reservation(sequence.prompt_tokens - held, sequence.max_tokens)
        unfilled = sequence.prompt_tokens - cached
        self._filling[sequence.id] = _Slot(
            sequence, sequence.length, unfilled, cached, reserved, context=sequence.prompt_tokens, shared=shared
        )
        self._reserved += reserved
        self._prompt_tokens += sequence.prompt_tokens
        self._cached_tokens += cached
        self._cache.shrink(self.limits.kv_tokens - self._reserved)

    # ------------------------------------------------------------------ the two halves of a step

    def _prefill(self) -> tuple[float, list[tuple[int, int]]]:
        """Fill prompts in order of arrival, one chunk a step; milliseconds this adds to the step, and who is full."""
        if not self._filling:
            return 0.0, []
        budget = self.limits.chunk_tokens
        joined = []
        for slot in list(self._filling.values()):
            if budget <= 0:
                break
            part = min(budget, slot.unfilled)
            budget -= part
            slot.unfilled -= part
            if slot.unfilled == 0:
                self._join(slot)
                joined.append((slot.sequence.id, slot.cached))
        filled = self.limits.chunk_tokens - budget
        if filled == 0:
            return 0.0, joined
        spent_ms = 1000.0 * filled / self.limits.prefill_tokens_per_s * self._noise() * self.limits.time_scale
        self._prefill_tokens += filled
        self._prefill_ms += spent_ms
        return spent_ms, joined

    def _join(self, slot: _Slot) -> None:
        del self._filling[slot.sequence.id]
        self._running[slot.sequence.id] = slot
        self._context += slot.context
        blocks = slot.sequence.blocks
        self._cache.use(blocks[slot.shared :])
        read = (len(blocks) - slot.shared) * BLOCK_TOKENS  # others may share it from now on: it is the cache's
        slot.shared = len(blocks)
        slot.reserved -= read
        self._reserved -= read
        self._cache.shrink(self.limits.kv_tokens - self._reserved)

    def _choose(self, batch: int, context: float) -> float:
        """Milliseconds of the coming step, once it is chosen whether to speculate in it."""
        step_ms = self._step_time.step_ms(batch, context)
        paused_ms = self._pause.step_ms(step_ms, batch, context) if self._pause is not None else None
        self._drafting = self._acceptance is not None and paused_ms is None
        return step_ms if paused_ms is None else paused_ms

    def _decode(self, batch: int) -> tuple[list[tuple[int, int, bool]], int]:
        drawn = self._acceptance.draw(self._rng, batch) if self._acceptance and self._drafting else repeat(1)
        emitted = []
        ended = []
        total = 0
        # The innermost loop of every simulation: `min` and a second pass over all would make it half as slow again.
        for (sequence_id, slot), length in zip(self._running.items(), drawn, strict=False):
            left = slot.left
            count = length if length < left else left
            slot.left = left = left - count
            slot.context += count
            total += count
            emitted.append((sequence_id, count, left == 0))
            if left == 0:
                ended.append(sequence_id)
        self._context += total
        for sequence_id in ended:
            self._leave(sequence_id)
        self._finished += len(ended)
        return emitted, total

    def _leave(self, sequence_id: int) -> bool:
        slot = self._running.pop(sequence_id, None)
        if slot is not None:
            self._context -= slot.context
        else:
            slot = self._filling.pop(sequence_id, None)
        if slot is None:
            return False
        self._reserved -= slot.reserved
        self._cache.release(slot.sequence.blocks[: slot.shared])
        return True

    # ------------------------------------------------------------------ noise and records

    def _noise(self) -> float:
        """Log-normal with mean 1, so that jitter does not move throughput."""
        sigma = self.limits.jitter
        return math.exp(self._rng.gauss(-sigma * sigma / 2.0, sigma)) if sigma else 1.0

    def _record(self, batch: int, decode_ms: float, count: int, *, after_prefill: bool) -> None:
        us = decode_ms * 1000.0
        if not after_prefill:
            # Told from launch to launch: a step with a prefill before it has no time of its own.
            moments = self._moments
            moments[0] += 1.0
            moments[1] += batch
            moments[2] += us
            moments[3] += batch * batch
            moments[4] += batch * us
            moments[5] += count
        self._generated += count
        if self._acceptance is not None:
            # A step that drafts nothing is verified all the same, as in the real engine.
            self._verify_calls += batch
        steps, spent_us, tokens = self._gauge
        steps, spent_us, tokens = steps + 1, spent_us + us, tokens + count
        if steps >= GAUGE_STEPS:
            self._throughput = 1e6 * tokens / spent_us
            steps, spent_us, tokens = 0, 0.0, 0
        self._gauge = (steps, spent_us, tokens)


def reservation(prompt_tokens: int, max_tokens: int) -> int:
    """The tokens that a sequence reserves for itself, of whose prompt so many are not cached."""
    return prompt_tokens + min(max_tokens, MAX_RESERVED_OUTPUT)

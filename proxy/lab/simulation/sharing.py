"""Engines that share their speed among all sequences of their batch: the engine model without its single steps.

Between two changes of the batch each sequence gains the same tokens per second, so what all have gained is one number
per engine, and the next to end is the one that wants least of it. A change costs the logarithm of the batch instead of
a step of all of it; lab/engine.py takes every step, and tests hold the two together. Not here: jitter and the chance
of each acceptance, of which only the means are left, and who sends requests.
"""

from collections import deque
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import count

from proxy.lab.engine import reservation
from proxy.lab.prefix_cache import BLOCK_TOKENS, PrefixCache
from proxy.lab.simulation.moments import Moments
from proxy.lab.simulation.pace import Pace

_NEVER_S = float("inf")


@dataclass(slots=True, eq=False)
class Task:
    """One request as an engine has it.

    `step_share` is how much of a step is left when it comes, 0 to 1: prompts are taken in between two steps.
    `acceptance` is what it gains by speculation as a share of the mean, `stays_tokens` after how much of its answer its
    client leaves. What follows is filled in on the way, instants in seconds; it has its first token from `first_at_s`.
    """

    prompt_tokens: int
    length: int
    step_share: float = 0.0
    blocks: tuple[int, ...] = ()
    acceptance: float = 1.0
    stays_tokens: float = _NEVER_S
    cached_tokens: int = 0
    first_at_s: float = _NEVER_S
    ended_at_s: float = 0.0
    unfilled: int = 0
    ends_at_tokens: float = 0.0
    reserved: int = 0
    shared: int = 0


@dataclass(frozen=True, slots=True)
class Bounds:
    """What bounds one engine, as in lab/engine.py: `max_running` sequences, of so many tokens in all."""

    max_running: int
    kv_tokens: int
    prefill_tokens_per_s: float
    chunk_tokens: int = 8192


@dataclass(slots=True, eq=False)
class Station:
    """One engine. `gained` is what a sequence that had been there from the start would have, in tokens; `moments` are
    None where nobody will ask for them."""

    pace: Pace
    bounds: Bounds
    gained: float = 0.0
    tokens_per_s: float = 0.0
    running: list[tuple[float, int, Task]] = field(default_factory=list)
    filling: deque[Task] = field(default_factory=deque)
    waiting: deque[Task] = field(default_factory=deque)
    reserved: int = 0
    cache: PrefixCache = field(default_factory=PrefixCache)
    moments: Moments | None = None

    @property
    def has_prompts(self) -> bool:
        """Whether a prompt is there that has not been filled."""
        return bool(self.filling or self.waiting)

    def fill(self) -> float:
        """Admit what there is room for and fill one chunk of prompts; the seconds it takes."""
        while self.waiting and self._has_room(self.waiting[0]):
            self._admit(self.waiting.popleft())
        budget = self.bounds.chunk_tokens
        for task in self.filling:
            part = min(budget, task.unfilled)
            task.unfilled -= part
            budget -= part
            if not budget:
                break
        return (self.bounds.chunk_tokens - budget) / self.bounds.prefill_tokens_per_s

    def join(self, number: "count[int]") -> list[Task]:
        """Begin to decode what has been filled."""
        joined = []
        while self.filling and not self.filling[0].unfilled:
            task = self.filling.popleft()
            task.ends_at_tokens = self._ends_at_tokens(task)
            heappush(self.running, (task.ends_at_tokens, next(number), task))
            if task.blocks:
                self._share(task)
            joined.append(task)
        return joined

    def end(self) -> Task:
        """The sequence that has gained all it wanted."""
        ends_at_tokens, _, task = heappop(self.running)
        # To the last digit, so that sequences of one length end together. An empty engine begins anew: near zero a
        # number keeps more digits than after a long day.
        self.gained = ends_at_tokens if self.running else 0.0
        self._free(task)
        return task

    def has(self, task: Task) -> bool:
        """Whether a request is here."""
        return task in self.waiting or task in self.filling or any(each[2] is task for each in self.running)

    def drop(self, task: Task) -> None:
        """Free what a request has here, wherever it is."""
        if task in self.waiting:
            self.waiting.remove(task)
            return
        if task in self.filling:
            self.filling.remove(task)
        else:
            self.running = [each for each in self.running if each[2] is not task]
            heapify(self.running)
            if not self.running:
                self.gained = 0.0
        self._free(task)

    def clear(self) -> list[Task]:
        """Lose all requests and all that is cached; those that were here, in the order of their coming."""
        running = [task for _, _, task in sorted(self.running, key=lambda each: each[1])]
        lost = [*running, *self.filling, *self.waiting]
        self.running, self.cache = [], PrefixCache()
        self.filling.clear()
        self.waiting.clear()
        self.gained, self.reserved = 0.0, 0
        if self.moments is not None:
            self.moments = Moments()
        return lost

    def _ends_at_tokens(self, task: Task) -> float:
        """What `gained` is at its end: it tells of sequences of mean acceptance."""
        if task.stays_tokens < task.length:
            wanted = task.stays_tokens
        elif task.acceptance == 1.0:
            return self.gained + task.length + self.pace.surplus_tokens
        else:
            wanted = task.length + self.pace.surplus_tokens
        return self.gained + (wanted / task.acceptance if self.pace.drafts else wanted)

    def _has_room(self, task: Task) -> bool:
        admitted = len(self.running) + len(self.filling)
        if admitted >= self.bounds.max_running:
            return False
        return admitted == 0 or self.reserved + self._needs(task) <= self.bounds.kv_tokens

    def _needs(self, task: Task) -> int:
        """What must not be let go of for it, and what it reserves: of its prompt only what is not cached."""
        cached = self.cache.held(task.blocks)
        in_use = self.cache.in_use(task.blocks[: cached // BLOCK_TOKENS])
        return in_use + reservation(task.prompt_tokens - cached, task.length)

    def _admit(self, task: Task) -> None:
        held = 0
        if task.blocks:
            held = self.cache.held(task.blocks)
            task.cached_tokens, task.shared = min(held, max(0, task.prompt_tokens - 1)), held // BLOCK_TOKENS
            self.cache.use(task.blocks[: task.shared])
        task.unfilled = task.prompt_tokens - task.cached_tokens
        task.reserved = reservation(task.prompt_tokens - held, task.length)
        self.reserved += task.reserved
        self.cache.shrink(self.bounds.kv_tokens - self.reserved)
        self.filling.append(task)

    def _share(self, task: Task) -> None:
        """Others may share the blocks that have been read: they are the cache's from now on."""
        self.cache.use(task.blocks[task.shared :])
        read = (len(task.blocks) - task.shared) * BLOCK_TOKENS
        task.shared, task.reserved = len(task.blocks), task.reserved - read
        self.reserved -= read
        self.cache.shrink(self.bounds.kv_tokens - self.reserved)

    def _free(self, task: Task) -> None:
        self.reserved -= task.reserved
        if task.shared:
            self.cache.release(task.blocks[: task.shared])
            task.shared = 0


class Gpus:
    """The GPUs of one engine, or of two that share them: while both decode their steps alternate, and a chunk of
    prompts holds up all of them. The owner calls `fire` at `next_at_s`, and `submit` at no time after it."""

    __slots__ = ("_chunk_ends", "_cycle_s", "_number", "_prompts_at_s", "_stalled", "next_at_s", "now_s", "stations")

    def __init__(self, *stations: Station) -> None:
        self.stations = stations
        self.now_s = 0.0
        self.next_at_s = _NEVER_S
        self._stalled = False
        self._prompts_at_s = _NEVER_S
        self._cycle_s = 0.0
        self._number = count()

    def submit(self, station: Station, task: Task, now_s: float) -> None:
        """Give a request to one of the engines."""
        station.waiting.append(task)
        if self._stalled or self._prompts_at_s != _NEVER_S:
            return
        self.advance(now_s)
        self._prompts_at_s = now_s + task.step_share * self._cycle_s
        self.next_at_s = min(self.next_at_s, self._prompts_at_s)

    def fire(self) -> Task | None:
        """Let happen what is due at `next_at_s`; the request that ends by it, if one does."""
        self.advance(self.next_at_s)
        if self._stalled:
            self._end_chunk()
            return None
        if self.now_s >= self._prompts_at_s:
            self._begin_chunk()
            return None
        station = min(self.stations, key=_left_s)
        task = station.end()
        task.ended_at_s = self.now_s
        self._shrunk(station)
        return task

    def drop(self, station: Station, task: Task, now_s: float) -> None:
        """Take a request away that one of the engines has."""
        self.advance(now_s)
        station.drop(task)
        if not self._stalled:
            self._shrunk(station)

    def clear(self, station: Station, now_s: float) -> list[Task]:
        """One of the engines loses all that it has: those requests, in the order of their coming."""
        self.advance(now_s)
        lost = station.clear()
        if not self._stalled:
            self._shrunk(station)
        return lost

    def repace(self, station: Station, pace: Pace, now_s: float) -> None:
        """One of the engines is as fast as that from now on."""
        self.advance(now_s)
        station.pace = pace
        if not self._stalled:
            self._retime()

    def _shrunk(self, station: Station) -> None:
        """Go on after the batch of an engine has become smaller."""
        if self._prompts_at_s == _NEVER_S and station.waiting:
            self._prompts_at_s = self.now_s  # there is room
        self._retime()
        if not self._cycle_s and self._prompts_at_s != _NEVER_S:
            self._prompts_at_s = self.next_at_s = self.now_s  # no step is left to wait for

    def advance(self, now_s: float) -> None:
        """Let the engines decode until now, which must not be after `next_at_s`."""
        if not self._stalled:
            elapsed_s = now_s - self.now_s
            for station in self.stations:
                gained = elapsed_s * station.tokens_per_s
                station.gained += gained
                if station.moments is not None and gained:
                    station.moments.add(len(station.running), elapsed_s / self._cycle_s, elapsed_s, gained)
        self.now_s = now_s

    def _begin_chunk(self) -> None:
        self._prompts_at_s = _NEVER_S
        taken_s = sum(station.fill() for station in self.stations if station.has_prompts)
        if taken_s or any(station.filling for station in self.stations):
            self._stalled = True
            self.next_at_s = self.now_s + taken_s
        else:
            self._retime()  # no room: what ends next makes some

    def _end_chunk(self) -> None:
        self._stalled = False
        joined = [(station, station.join(self._number)) for station in self.stations if station.filling]
        self._retime()
        for station, tasks in joined:
            # The step that follows a chunk is of the same engine; the other one's comes after it.
            first_at_s = self.now_s + station.pace.step_s[len(station.running)]
            for task in tasks:
                task.first_at_s = first_at_s
        if any(station.filling or station.waiting for station in self.stations):
            self._prompts_at_s = self.now_s + self._cycle_s
            self.next_at_s = min(self.next_at_s, self._prompts_at_s)

    def _retime(self) -> None:
        """The speeds and the next instant after a change of batches."""
        cycle_s = 0.0
        for station in self.stations:
            cycle_s += station.pace.step_s[len(station.running)]
        self._cycle_s = cycle_s
        next_at_s = self._prompts_at_s
        for station in self.stations:
            running = station.running
            if running:
                station.tokens_per_s = speed = station.pace.tokens[len(running)] / cycle_s
                ends_at_s = self.now_s + (running[0][0] - station.gained) / speed
                next_at_s = min(next_at_s, ends_at_s)
            else:
                station.tokens_per_s = 0.0
        self.next_at_s = next_at_s


def _left_s(station: Station) -> float:
    """Seconds until the next sequence of a station ends as things stand."""
    return (station.running[0][0] - station.gained) / station.tokens_per_s if station.running else _NEVER_S

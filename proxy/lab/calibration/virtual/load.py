"""The closed loop of a virtual cell: so many sequences in an engine model, each followed at once by the next.

Whose engine it is and what becomes of the counts is in virtual.py.
"""

from collections import deque
from collections.abc import Sequence as Series
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import NamedTuple

from proxy.lab.calibration.values import Cell, Condition, Prefix
from proxy.lab.engine import Engine, EngineBooks, Sequence
from proxy.lab.prefix_cache import BLOCK_TOKENS

# From an answer's end until the next request is at the engine. It misses the step that has begun meanwhile, as over
# HTTP, so that a batch is a little smaller than the load; 0 would hide what this does to an estimate.
TURNAROUND_S = 0.005

# Natural lengths lie around this share of the most that is allowed.
NATURAL_SHARE = 0.4


class Ended(NamedTuple):
    """One request that ended, instants on the virtual clock."""

    asked_at_s: float
    first_at_s: float
    ended_at_s: float
    tokens: int

    @property
    def tpot_s(self) -> float:
        """Seconds for each token after the first."""
        return (self.ended_at_s - self.first_at_s) / (self.tokens - 1)

    @property
    def tok_s(self) -> float:
        """Tokens by all the time that the request took."""
        return self.tokens / (self.ended_at_s - self.asked_at_s)


class Counted(NamedTuple):
    """What a window saw: its length, the engine's books at both ends, the requests that ended and the steps' times."""

    window_s: float
    before: EngineBooks
    after: EngineBooks
    ended: Series[Ended]
    first_tokens_s: Series[float]
    gaps_s: Series[float]

    def gained(self, name: str) -> float:
        """By how much one of the books' totals grew."""
        return float(getattr(self.after, name) - getattr(self.before, name))

    @property
    def moments(self) -> tuple[float, ...]:
        """By how much the decode moments grew."""
        return tuple(after - before for before, after in zip(self.before.moments, self.after.moments, strict=True))


@dataclass(slots=True)
class _Request:
    asked_at_s: float
    tokens: int
    first_at_s: float = 0.0


class VirtualLoad:
    """Keeps `concurrency` requests going on one engine. `now_s` is the virtual clock, moved by the engine's steps."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.now_s = 0.0
        self._ids = count()
        self._live: dict[int, _Request] = {}
        self._next_at_s: deque[float] = deque()
        self._first_wave: set[int] = set()
        self._forget()

    def begin(self, cell: Cell, at_s: float, rng: Random | None) -> None:
        """Start all sequences of a cell; with `rng` lengths are natural.

        First answers have shares of the length, so that they do not end together.
        """
        self.now_s = at_s
        self._cell, self._rng = cell, rng
        self._prompt_tokens = prompt_tokens_of(cell.condition)
        held = self._prompt_tokens // BLOCK_TOKENS if cell.condition.prefix is Prefix.WARM else 0
        self._blocks = tuple(range(held))
        for worker in range(cell.concurrency):
            share = (worker + 1) / cell.concurrency
            self._first_wave.add(self._ask(max(1, round(share * self._length()))))

    def run_until_all_joined(self) -> None:
        """Until the first request of each worker has had a token."""
        while self._first_wave:
            self._step()

    def run(self, span_s: float, enough_steps: float, enough_draws: float) -> None:
        """For `span_s`, or until so many steps, and draws (steps x sequences), have been made."""
        until_s = self.now_s + span_s
        steps = draws = 0
        while self.now_s < until_s and (steps < enough_steps or draws < enough_draws):
            draws += self._step()
            steps += 1

    def open_window(self) -> None:
        """Count from here."""
        self._forget()
        self._opened_at_s, self._before = self.now_s, self.engine.books()

    def close_window(self) -> Counted:
        """What was counted since the window was opened."""
        window_s = self.now_s - self._opened_at_s
        return Counted(window_s, self._before, self.engine.books(), self._ended, self._first_tokens_s, self._gaps_s)

    def end(self) -> None:
        """Leave nothing on the engine."""
        for sequence_id in self._live:
            self.engine.abort(sequence_id)
        self._live.clear()
        self._next_at_s.clear()
        self._first_wave.clear()

    def _forget(self) -> None:
        self._ended: list[Ended] = []
        self._first_tokens_s: list[float] = []
        self._gaps_s: list[float] = []

    def _length(self) -> int:
        most = self._cell.condition.max_tokens
        if self._rng is None:
            return most
        return min(most, max(1, round(self._rng.lognormvariate(0.0, 0.6) * NATURAL_SHARE * most)))

    def _ask(self, tokens: int) -> int:
        sequence_id = next(self._ids)
        self._live[sequence_id] = _Request(self.now_s, tokens)
        asked = self._cell.condition.max_tokens
        self.engine.submit(Sequence(sequence_id, self._prompt_tokens, tokens, asked, self._blocks))
        return sequence_id

    def _step(self) -> int:
        """One step of the engine; how many sequences decoded in it."""
        if len(self._next_at_s) == self._cell.concurrency:
            self.now_s = max(self.now_s, self._next_at_s[0])
        while self._next_at_s and self._next_at_s[0] <= self.now_s:
            self._next_at_s.popleft()
            self._ask(self._length())
        step = self.engine.step()
        self.now_s += step.duration_s
        self._gaps_s.append(step.duration_s)
        for sequence_id, _ in step.joined:
            self._saw_first_token(sequence_id)
        for sequence_id, _, finished in step.emitted:
            if finished:
                self._saw_end(sequence_id)
        return len(step.emitted)

    def _saw_first_token(self, sequence_id: int) -> None:
        request = self._live[sequence_id]
        request.first_at_s = self.now_s
        self._first_tokens_s.append(self.now_s - request.asked_at_s)
        self._first_wave.discard(sequence_id)

    def _saw_end(self, sequence_id: int) -> None:
        request = self._live.pop(sequence_id)
        self._ended.append(Ended(request.asked_at_s, request.first_at_s, self.now_s, request.tokens))
        self._next_at_s.append(self.now_s + TURNAROUND_S)


def prompt_tokens_of(condition: Condition) -> int:
    """The prompt with which the mean context of a decoding sequence is the condition's."""
    return max(1, condition.context_tokens - condition.max_tokens // 2)

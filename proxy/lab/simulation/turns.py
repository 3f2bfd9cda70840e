"""Conversations: each question comes some while after the answer before it, its prompt has all that was said before.

Their sizes and gaps follow what was published of a chat service (the conversation trace of Mooncake, an hour of it):
docs/simulation.md sets both side by side. Requests without a past are in arrivals.py, recorded ones in traces.py.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush
from itertools import count
from math import exp
from random import Random

from proxy.lab.prefix_cache import BLOCK_TOKENS
from proxy.lab.simulation.arrivals import Means, Offer, Source

# Of a third of the requests there the whole prompt of an earlier one is the beginning: one question and a half for each
# conversation. Between two there are two minutes.
MEAN_TURNS, GAP_S = 1.5, 120.0
_GAP_SPREAD = 1.0

# Prompts of first questions are log-normal.
_FIRST_TOKENS, _FIRST_SPREAD = 5933.0, 1.16
# Most questions that follow are a sentence; the others bring a document along.
_WORDS_SHARE, _WORDS_TOKENS, _WORDS_SPREAD = 0.7, 14.0, 0.8
_PAPERS_TOKENS, _PAPERS_SPREAD = 2000.0, 1.1
_ANSWER_TOKENS, _ANSWER_SPREAD = 343.0, 200.0
# Models have a longest context, and conversations end there.
MAX_CONTEXT = 120_000

# All begin with the same instructions, which fill this many blocks.
_SYSTEM_BLOCKS = 1
# Block numbers that one conversation may have: the longest context and room.
_BLOCKS_EACH = 1024

# Conversations are under way when a run begins, as if they had begun in this many mean lives before it; an answer took
# about so long then.
_LIVES_BEFORE, _ANSWER_S = 4.0, 5.0

# Requests from which the means are taken.
_SAMPLED = 4000


@dataclass(frozen=True, slots=True)
class Question:
    """One question: the tokens of its prompt, those of them in whole blocks of the prompt before, and its answer's."""

    prompt_tokens: int
    old_tokens: int
    tokens: int


@dataclass(frozen=True)
class Turns:
    """Conversations that begin at random, of `mean_turns` questions on average; half of all gaps between an answer and
    the next question are below `gap_s`."""

    mean_turns: float = MEAN_TURNS
    gap_s: float = GAP_S
    paced = True
    load = None

    @property
    def name(self) -> str:
        """As on the command line."""
        return f"turns:{self.mean_turns:g}/{self.gap_s:g}"

    @property
    def means(self) -> Means:
        """As `Arrivals.means`; what was said before is taken to be held."""
        return self._means

    @cached_property
    def _means(self) -> Means:
        asked = [question for talk in range(_SAMPLED) for question in self.talk(Random(f"means {talk}"))]
        output = sum(each.tokens for each in asked)
        context = sum(each.tokens * (each.prompt_tokens + each.tokens / 2) for each in asked)
        new = sum(each.prompt_tokens - each.old_tokens for each in asked)
        return Means(new / len(asked), output / len(asked), context / output)

    def talk(self, rng: Random) -> Iterator[Question]:
        """One conversation's questions."""
        held = old = 0
        while True:
            new = _first(rng) if not held else _following(rng)
            question = Question(min(held + new, MAX_CONTEXT), old, _answer(rng))
            yield question
            held, old = question.prompt_tokens + question.tokens, question.prompt_tokens // BLOCK_TOKENS * BLOCK_TOKENS
            if held >= MAX_CONTEXT or rng.random() * self.mean_turns < 1.0:
                return

    def gap(self, rng: Random) -> float:
        """Seconds from an answer to the next question."""
        return self.gap_s * rng.lognormvariate(0.0, _GAP_SPREAD)

    def source(self, rate_per_s: float, seed: int) -> Source:
        """As `Arrivals.source`. Each conversation asks the same for the same seed, whenever it is answered."""
        return _Talking(self, rate_per_s, seed)


class _Talking:
    """The conversations of one run."""

    __slots__ = ("_begins_s", "_due", "_live", "_numbers", "_rate_per_s", "_rng", "_seed", "_turns")

    def __init__(self, turns: Turns, rate_per_s: float, seed: int) -> None:
        self._turns = turns
        self._rate_per_s = rate_per_s / turns.mean_turns
        self._rng = Random(seed)
        self._seed = seed
        self._numbers = count(1)
        self._due: list[tuple[float, int, Question]] = []
        self._live: dict[int, tuple[Random, Iterator[Question]]] = {}
        life_s = turns.mean_turns * (exp(_GAP_SPREAD**2 / 2) * turns.gap_s + _ANSWER_S)
        self._begins_s = -_LIVES_BEFORE * life_s
        while self._begins_s < 0.0:
            self._begin()

    @property
    def next_at_s(self) -> float:
        return min(self._begins_s, self._due[0][0]) if self._due else self._begins_s

    def take(self) -> Offer:
        if not self._due or self._begins_s <= self._due[0][0]:
            self._begin()
        at_s, number, question = heappop(self._due)
        rng, _ = self._live[number]
        return Offer(at_s, question.prompt_tokens, question.tokens, rng.random(), _blocks(number, question), number)

    def ended(self, at_s: float, conversation: int) -> None:
        """The next question comes, where there is one."""
        rng, questions = self._live[conversation]
        question = next(questions, None)
        if question is None:
            del self._live[conversation]
        else:
            heappush(self._due, (at_s + self._turns.gap(rng), conversation, question))

    def _begin(self) -> None:
        """A conversation begins; one from before the run has been answered until the run begins."""
        number, at_s = next(self._numbers), self._begins_s
        rng = Random(f"{self._seed} {number}")
        questions = self._turns.talk(rng)
        self._begins_s += self._rng.expovariate(self._rate_per_s)
        for question in questions:
            if at_s >= 0.0:
                self._live[number] = (rng, questions)
                heappush(self._due, (at_s, number, question))
                return
            at_s += _ANSWER_S + self._turns.gap(rng)


def _blocks(number: int, question: Question) -> tuple[int, ...]:
    """Hashes of the whole blocks of a prompt; all of a conversation begin alike."""
    whole = question.prompt_tokens // BLOCK_TOKENS
    mine = range(number * _BLOCKS_EACH, number * _BLOCKS_EACH + max(0, whole - _SYSTEM_BLOCKS))
    return (*range(min(whole, _SYSTEM_BLOCKS)), *mine)


def _first(rng: Random) -> int:
    return min(MAX_CONTEXT - 1, max(1, round(_FIRST_TOKENS * rng.lognormvariate(0.0, _FIRST_SPREAD))))


def _following(rng: Random) -> int:
    if rng.random() < _WORDS_SHARE:
        return max(1, round(_WORDS_TOKENS * rng.lognormvariate(0.0, _WORDS_SPREAD)))
    return max(1, round(_PAPERS_TOKENS * rng.lognormvariate(0.0, _PAPERS_SPREAD)))


def _answer(rng: Random) -> int:
    return max(1, round(rng.gauss(_ANSWER_TOKENS, _ANSWER_SPREAD)))

"""Conversations of several turns as a kind of traffic, with the statistics of recorded ones.

Each turn's prompt is all that was said before and some more; what two prompts have in common is told by blocks, as
recorded traces tell it. How they are routed is in affinity.py.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from math import exp, log
from random import Random

from proxy.lab.simulation.arrivals import Means, Offer, Source, open_source

BLOCK_TOKENS = 512
# Every prompt begins with the same system prompt.
SYSTEM_TOKENS = 512
# Longer conversations are over: what the engines of these curves take.
MAX_TOKENS = 100_000
# Conversations of which means are taken.
SAMPLE = 4000


@dataclass(frozen=True, slots=True)
class Habit:
    """How people or programs talk. Tokens and seconds are log-normal, told as median and sigma; `goes_on` is the chance
    that a first turn is followed by another, and grows by `more` with each turn up to `most`."""

    name: str
    first_tokens: tuple[float, float]
    later_tokens: tuple[float, float]
    pause_s: tuple[float, float]
    goes_on: float
    more: float
    most: float
    answer_tokens: float = 343.0


# After 12,031 requests of Mooncake's conversation trace: 38 % are later turns, first prompts of 905, 5,226 and 25,526
# tokens at the 10th, 50th and 90th percentile, pauses of 42, 123 and 483 s, answers of 343 tokens in the mean.
CHATS = Habit("chats", (5200.0, 1.24), (700.0, 1.7), (123.0, 1.0), goes_on=0.30, more=0.09, most=0.80)
# Programs that call tools: four of five requests are later turns, seconds after the one before, from 6,000 tokens on.
AGENTS = Habit(
    "agents", (6000.0, 0.5), (600.0, 1.0), (8.0, 0.8), goes_on=0.80, more=0.0, most=0.80, answer_tokens=182.0
)


class Turn:
    """The next request of one conversation."""

    __slots__ = ("at_s", "conversation", "number", "said", "tokens")

    def __init__(self, conversation: int, at_s: float, said: int, tokens: int) -> None:
        self.conversation, self.number, self.at_s = conversation, 1, at_s
        self.said, self.tokens = said, tokens

    def __lt__(self, other: "Turn") -> bool:
        return (self.at_s, self.conversation) < (other.at_s, other.conversation)


@dataclass(frozen=True, slots=True)
class Conversations:
    """Conversations that begin at random. They pause between an answer's usual end and the next turn, whatever became
    of it, so that every way of routing meets the same requests."""

    habit: Habit
    paced = True

    @property
    def name(self) -> str:
        """As in tables."""
        return self.habit.name

    @property
    def means(self) -> Means:
        """As `Arrivals.means`; what came before is taken to be held."""
        offers = list(self._sample())
        outputs = sum(offer.tokens for offer, _ in offers)
        context = sum(offer.tokens * (offer.prompt_tokens + offer.tokens / 2) for offer, _ in offers)
        prompts = sum(offer.prompt_tokens - held for offer, held in offers)
        return Means(prompts / len(offers), outputs / len(offers), context / outputs)

    @property
    def turns(self) -> float:
        """Requests of a conversation, in the mean."""
        offers = [offer.conversation for offer, _ in self._sample()]
        return len(offers) / len(set(offers))

    def source(self, rate_per_s: float, seed: int) -> Source:
        """As `Arrivals.source`."""
        return open_source(offer for offer, _ in self._offers(rate_per_s / self.turns, Random(seed)))

    def _sample(self) -> Iterator[tuple[Offer, int]]:
        for number, told in enumerate(self._offers(1.0, Random(0))):
            if number == SAMPLE:
                return
            yield told

    def _offers(self, begin_per_s: float, rng: Random) -> Iterator[tuple[Offer, int]]:
        """Requests, with the tokens of each that were said before."""
        habit, due, begins_s, conversation = self.habit, list[Turn](), 0.0, 0
        while True:
            begins_s += rng.expovariate(begin_per_s)
            while due and due[0].at_s <= begins_s:
                yield self._take(due, rng)
            conversation += 1
            said = SYSTEM_TOKENS + drawn(habit.first_tokens, rng)
            heappush(due, Turn(conversation, begins_s, SYSTEM_TOKENS, min(said, MAX_TOKENS)))

    def _take(self, due: list[Turn], rng: Random) -> tuple[Offer, int]:
        turn, habit = heappop(due), self.habit
        answer = max(1, round(rng.expovariate(1.0 / habit.answer_tokens)))
        whole = turn.tokens // BLOCK_TOKENS
        blocks = (0, *(turn.conversation * 1000 + at for at in range(1, whole)))[:whole]
        offer = Offer(turn.at_s, turn.tokens, answer, rng.random(), blocks, turn.conversation)
        held = turn.said // BLOCK_TOKENS * BLOCK_TOKENS
        if rng.random() < min(habit.most, habit.goes_on + habit.more * (turn.number - 1)):
            turn.said, turn.number = turn.tokens, turn.number + 1
            turn.tokens += answer + drawn(habit.later_tokens, rng)
            turn.at_s += drawn_s(habit.pause_s, rng)
            if turn.tokens <= MAX_TOKENS:
                heappush(due, turn)
        return offer, held


def drawn(median_and_sigma: tuple[float, float], rng: Random) -> int:
    """Tokens, at least 1."""
    return max(1, round(drawn_s(median_and_sigma, rng)))


def drawn_s(median_and_sigma: tuple[float, float], rng: Random) -> float:
    """A log-normal number."""
    median, sigma = median_and_sigma
    return exp(rng.gauss(log(median), sigma))

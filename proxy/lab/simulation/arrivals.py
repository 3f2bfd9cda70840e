"""When requests come and what they ask: Poisson, in bursts, in a closed loop. Recorded ones are read in traces.py."""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import exp
from random import Random
from typing import NamedTuple, Protocol

NEVER_S = float("inf")

# A prompt and an answer of a chat: what the published simulations of this problem take.
PROMPT_TOKENS, OUTPUT_TOKENS = 400, 256.0


class Offer(NamedTuple):
    """A request as it comes. `step_share` is how much of the engine's step is left then, 0 to 1; `blocks` are the whole
    blocks of its prompt, each a hash of all up to its end; `conversation` names the one that it belongs to, if any.

    `acceptance` is what speculation gains for it as a share of what it gains on average. Its client leaves after
    `patience_s`, or once it has read that share of the answer.
    """

    at_s: float
    prompt_tokens: int
    tokens: int
    step_share: float = 0.0
    blocks: tuple[int, ...] = ()
    conversation: int = 0
    acceptance: float = 1.0
    patience_s: float = NEVER_S
    read: float = 1.0


class Means(NamedTuple):
    """Means over requests, in tokens: what a prompt has that no cache holds, what an answer has, and what a sequence
    that decodes has behind it."""

    prompt: float
    output: float
    context: float


class Source(Protocol):
    """Requests one after the other. `next_at_s` is infinite while none is known to come."""

    @property
    def next_at_s(self) -> float:
        """When the next one comes, in seconds."""

    def take(self) -> Offer:
        """The request that comes at `next_at_s`."""

    def ended(self, at_s: float, conversation: int) -> None:
        """A request has ended, one of that conversation where it has one."""


class Arrivals(Protocol):
    """A kind of traffic. `paced` says whether a load can be asked of it."""

    paced: bool

    @property
    def load(self) -> float | None:
        """The mean share of what the engines can take where it is the traffic's own; else None."""

    @property
    def name(self) -> str:
        """How the command line says it."""

    @property
    def means(self) -> Means:
        """What its requests are like on average."""

    def source(self, rate_per_s: float, seed: int) -> Source:
        """The same requests for the same seed; the mean rate is as asked where the kind is paced."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Prompts of one length, answers of an exponential one with a mean. `in_step` False lets each request meet the end
    of a step, as models without steps have it."""

    prompt_tokens: int = PROMPT_TOKENS
    output_tokens: float = OUTPUT_TOKENS
    in_step: bool = True

    @property
    def means(self) -> Means:
        """As `Arrivals.means`; what is left of an exponential length at any time is as long as the whole."""
        return Means(float(self.prompt_tokens), self.output_tokens, self.prompt_tokens + self.output_tokens)

    def offer(self, rng: Random, at_s: float) -> Offer:
        """A request of random size."""
        tokens = max(1, round(rng.expovariate(1.0 / self.output_tokens)))
        return Offer(at_s, self.prompt_tokens, tokens, rng.random() if self.in_step else 0.0)


@dataclass(frozen=True, slots=True)
class Spread:
    """Prompts and answers of log-normal length, each with its median and its spread (the standard deviation of the
    logarithm)."""

    prompt_tokens: float
    prompt_spread: float
    output_tokens: float
    output_spread: float

    @property
    def means(self) -> Means:
        """As `Arrivals.means`, none of the prompts cached."""
        prompt = self.prompt_tokens * exp(self.prompt_spread**2 / 2)
        output = self.output_tokens * exp(self.output_spread**2 / 2)
        # Long answers are there for longer.
        return Means(prompt, output, prompt + output * exp(self.output_spread**2) / 2)

    def offer(self, rng: Random, at_s: float) -> Offer:
        """A request of random size."""
        prompt = self.prompt_tokens * rng.lognormvariate(0.0, self.prompt_spread)
        output = self.output_tokens * rng.lognormvariate(0.0, self.output_spread)
        return Offer(at_s, max(1, round(prompt)), max(1, round(output)), rng.random())


class _Open:
    """Requests that come whatever becomes of the others."""

    __slots__ = ("_next", "_offers", "next_at_s")

    def __init__(self, offers: Iterator[Offer]) -> None:
        self._offers = offers
        self._next = next(offers, None)
        self.next_at_s = NEVER_S if self._next is None else self._next.at_s

    def take(self) -> Offer:
        offer = self._next
        if offer is None:
            raise IndexError("no request comes any more; look at next_at_s")
        self._next = upcoming = next(self._offers, None)
        self.next_at_s = NEVER_S if upcoming is None else upcoming.at_s
        return offer

    def ended(self, at_s: float, conversation: int) -> None:
        """Nobody waits for it."""


class _Closed:
    """So many clients, each of which asks again as soon as it has its answer."""

    __slots__ = ("_due_s", "_make")

    def __init__(self, clients: int, make: Callable[[float], Offer]) -> None:
        self._due_s = deque([0.0] * clients)
        self._make = make

    @property
    def next_at_s(self) -> float:
        return self._due_s[0] if self._due_s else NEVER_S

    def take(self) -> Offer:
        return self._make(self._due_s.popleft())

    def ended(self, at_s: float, conversation: int) -> None:
        self._due_s.append(at_s)


@dataclass(frozen=True, slots=True)
class Gamma:
    """Gaps between requests follow a gamma distribution with this coefficient of variation: 1 is Poisson, above it
    requests come in bursts. `said` is the name of what it is like."""

    variation: float = 1.0
    sizes: "Sizes | Spread" = Sizes()
    said: str = ""
    paced = True
    load = None

    @property
    def name(self) -> str:
        """As on the command line."""
        return self.said or ("poisson" if self.variation == 1.0 else f"gamma:{self.variation:g}")

    @property
    def means(self) -> Means:
        """As `Arrivals.means`."""
        return self.sizes.means

    def source(self, rate_per_s: float, seed: int) -> Source:
        """As `Arrivals.source`."""
        return _Open(self._offers(rate_per_s, Random(seed)))

    def _offers(self, rate_per_s: float, rng: Random) -> Iterator[Offer]:
        shape = self.variation**-2
        scale_s = 1.0 / (rate_per_s * shape)
        at_s = 0.0
        while True:
            at_s += rng.expovariate(rate_per_s) if shape == 1.0 else rng.gammavariate(shape, scale_s)
            yield self.sizes.offer(rng, at_s)


@dataclass(frozen=True, slots=True)
class Closed:
    """A closed loop of so many clients; no rate can be asked of it."""

    clients: int
    sizes: Sizes = Sizes()
    paced = False
    load = None

    @property
    def name(self) -> str:
        """As on the command line."""
        return f"closed:{self.clients}"

    @property
    def means(self) -> Means:
        """As `Arrivals.means`."""
        return self.sizes.means

    def source(self, rate_per_s: float, seed: int) -> Source:
        """As `Arrivals.source`."""
        rng = Random(seed)
        return _Closed(self.clients, lambda at_s: self.sizes.offer(rng, at_s))


# After the statistics of Azure's public traces of 2023 (docs/simulation.md sets both side by side): completions of
# code, short and in bursts, and chats.
LIKE = {
    "code": Gamma(13.0, Spread(1469.0, 0.72, 13.0, 1.22), "code"),
    "chat": Gamma(1.09, Spread(1020.0, 0.65, 129.0, 0.95), "chat"),
}


def open_source(offers: Iterator[Offer]) -> Source:
    """Requests in their order of coming."""
    return _Open(offers)

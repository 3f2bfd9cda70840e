"""One request's sequences on their way through the engine: plans them, and hands what they yield to the answer."""

import asyncio
from collections.abc import Sequence as Series
from dataclasses import dataclass, field
from random import Random
from uuid import uuid4

from proxy.lab.answers import Answer, Choice, Script
from proxy.lab.ask_parts import Prompt
from proxy.lab.asks import Ask
from proxy.lab.engine import Sequence
from proxy.lab.outlet import Outlet
from proxy.lab.text import corpus

# Natural lengths of free text in tokens: log-normal like those of real chats, with a median a reader can follow.
_LENGTH_MU = 5.7
_LENGTH_SIGMA = 0.6
_SHORTEST, _LONGEST = 24, 2048


@dataclass(slots=True)
class Job:
    """One request under way. Instants are on the engine's clock, in seconds.

    `outlet` is where a stream leaves, None for an answer in one piece. `over` is set when every sequence has ended.
    """

    answer: Answer
    opened_at_s: float
    outlet: Outlet | None = None
    over: asyncio.Event = field(default_factory=asyncio.Event)
    ids: tuple[int, ...] = ()
    first_at_s: float | None = None
    last_at_s: float = 0.0
    ended: int = 0

    @property
    def choices(self) -> Series[Choice]:
        """Its sequences."""
        return self.answer.choices

    def deliver(self, index: int, count: int, finished: bool, now_s: float) -> None:
        """Take `count` new tokens of one choice, and send them on if this is a stream."""
        choice = self.choices[index]
        start = choice.produced
        choice.produced += count
        choice.steps += 1
        if self.first_at_s is None:
            self.first_at_s = now_s
        self.last_at_s = now_s
        if finished:
            choice.done = True
            self.ended += 1
        last = self.ended == len(self.choices)
        if self.outlet is not None:
            self.outlet.feed(self.answer.piece(choice, start, count), self.answer.closing() if last else None)
        if last:
            self.over.set()


def plan_choices(ask: Ask) -> tuple[Choice, ...]:
    """The choices of a request in the order of their index: prompt by prompt, n of each."""
    rid = ask.rid or uuid4().hex
    many = len(ask.prompts) * ask.n > 1
    return tuple(
        _plan(ask, prompt, place * ask.n + copy, f"{rid}_{uuid4().hex}" if many else rid)
        for place, prompt in enumerate(ask.prompts)
        for copy in range(ask.n)
    )


def as_sequence(choice: Choice, ask: Ask, sequence_id: int) -> Sequence:
    """What the engine must know of a choice."""
    return Sequence(sequence_id, choice.prompt.tokens, choice.length, ask.max_tokens, choice.prompt.blocks)


def _plan(ask: Ask, prompt: Prompt, index: int, rid: str) -> Choice:
    # The text depends on the request alone, so that both engines of a pair answer alike, as with real speculation.
    seed = prompt.fingerprint ^ (ask.seed * 0x9E3779B1) ^ (index % ask.n)
    rng = Random(seed)
    script = Script(opening=corpus().opening(rng.getrandbits(32)), fixed=ask.fixed)
    natural = script.length or min(_LONGEST, max(_SHORTEST, int(rng.lognormvariate(_LENGTH_MU, _LENGTH_SIGMA))))
    if ask.fixed is None:
        natural = ask.max_tokens if ask.ignore_eos else max(natural, ask.min_tokens)
    length = min(natural, ask.max_tokens)
    ending = "tool_calls" if ask.tool is not None else "stop"
    cut = length < natural or (ask.fixed is None and length == ask.max_tokens)
    return Choice(index, rid, prompt, script, length, "length" if cut else ending)

"""What every dialect's answer shares: choices, their text, usage, refusals. The shapes are in answers_*.py."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from proxy.lab.ask_parts import Prompt
from proxy.lab.asks import Ask
from proxy.lab.text import BYTES_PER_TOKEN, corpus

# The end-of-sequence token that a natural end reports as `matched_stop`.
EOS_TOKEN_ID = 2

# Token ids in native answers stay below this, like those of a small real vocabulary.
VOCABULARY = 32_768


@dataclass(frozen=True, slots=True)
class Script:
    """The text of one sequence: `fixed` where it is prescribed, else the corpus from token `opening` on."""

    opening: int = 0
    fixed: str | None = None

    @property
    def length(self) -> int | None:
        """Tokens until a prescribed text ends; None for free text, which has no end of its own."""
        return None if self.fixed is None else max(1, -(-len(self.fixed) // BYTES_PER_TOKEN))

    def text(self, start: int, count: int) -> str:
        """The text of `count` tokens from token `start` of this sequence on."""
        if self.fixed is not None:
            return self.fixed[start * BYTES_PER_TOKEN : (start + count) * BYTES_PER_TOKEN]
        return corpus().take(self.opening + start, count)

    def json(self, start: int, count: int) -> bytes:
        """As `text`, ready to stand between the quotes of a JSON string."""
        if self.fixed is not None:
            return orjson.dumps(self.text(start, count))[1:-1]
        return corpus().take_json(self.opening + start, count)

    def ids(self, count: int) -> list[int]:
        """Made-up ids of the first `count` tokens."""
        return [(self.opening + place) % VOCABULARY for place in range(count)]


@dataclass(slots=True)
class Choice:
    """One sequence of an answer and how far it is. `finish` is how it will end, shown once it is `done`."""

    index: int
    rid: str
    prompt: Prompt
    script: Script
    length: int
    finish: str
    produced: int = 0
    steps: int = 0
    cached_tokens: int = 0
    done: bool = False

    @property
    def matched_stop(self) -> int | None:
        """The token that ended it, for a natural end of free text."""
        return EOS_TOKEN_ID if self.finish == "stop" and self.script.fixed is None else None

    def text(self) -> str:
        """All its text so far."""
        return self.script.text(0, self.produced)


class Answer(ABC):
    """One request's answer in one dialect. `created` is unix seconds, `speculative` the engine's role.

    `piece` is called in order for each step that yields tokens, after the choice was advanced, and returns the bytes
    of one or more whole events.
    """

    content_type = "text/event-stream; charset=utf-8"
    head_at_once = False
    done_marker = b"data: [DONE]\n\n"

    def __init__(self, ask: Ask, choices: Sequence[Choice], created: int, *, speculative: bool = False) -> None:
        self.ask = ask
        self.choices = choices
        self.created = created
        self.speculative = speculative

    @property
    def rid(self) -> str:
        """The id of the request as a whole."""
        return self.choices[0].rid.partition("_")[0]

    @abstractmethod
    def piece(self, choice: Choice, start: int, count: int) -> bytes:
        """The events for `count` new tokens, the first of which is token `start` of the choice."""

    @abstractmethod
    def closing(self) -> bytes:
        """The events after every choice has ended."""

    @abstractmethod
    def whole(self) -> bytes:
        """The body of the answer when it is not streamed."""

    def refusal(self, message: str, kind: str, code: int) -> bytes:
        """The events of a stream that the engine refuses after the head was sent."""
        error = {"object": "error", "message": message, "type": kind, "param": None, "code": code}
        return event({"error": error}) + self.done_marker

    @property
    def completion_tokens(self) -> int:
        """Tokens generated so far, all choices together."""
        return sum(choice.produced for choice in self.choices)

    @property
    def prompt_tokens(self) -> int:
        """Prompt tokens, each prompt counted once however many choices it has."""
        return sum(choice.prompt.tokens for choice in self.choices[:: self.ask.n])

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens found in the prefix cache, each prompt counted once."""
        return sum(choice.cached_tokens for choice in self.choices[:: self.ask.n])

    def usage(self) -> dict[str, Any]:
        """Token counts in OpenAI's shape, in the field order of the real engine."""
        prompt, completion = self.prompt_tokens, self.completion_tokens
        return {
            "prompt_tokens": prompt,
            "total_tokens": prompt + completion,
            "completion_tokens": completion,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
            "reasoning_tokens": 0,
        }


def event(value: Any, name: str | None = None) -> bytes:
    """One server-sent event with a JSON value."""
    head = b"" if name is None else b"event: " + name.encode() + b"\n"
    return head + b"data: " + orjson.dumps(value) + b"\n\n"

"""What each request of a cell asks: a conversation of the condition's kind, as long as its context wants.

The conversations are in lab/prompt_texts.py, the text in front of them in material.py. How long a token is, is measured
in arm.py.
"""

from proxy.lab.calibration.stand.material import material
from proxy.lab.calibration.values import Condition, Prefix
from proxy.lab.prompts import Message, PromptKind, choose

# Distinct prompts of a cell: few enough to be sent once before the window, enough that neighbours differ. Cold ones are
# made unique by how they begin.
PROMPTS = 16

# Long texts that they share: one costs seconds of prefill. A prefix cache that has these has nearly the whole prompt.
MATERIALS = 8

# English and code with a chat template, by most vocabularies, until an engine has told.
CHARS_PER_TOKEN = 4.0

# Every cell of every run asks the same, so that repeats and arms are pairs.
_SEED = 1


def prompt_tokens(condition: Condition) -> int:
    """How long prompts are cut for, in tokens: half of the answer lies before the mean moment of decoding."""
    return max(1, condition.context_tokens - condition.max_tokens // 2)


def question(condition: Condition, index: int, chars_per_token: float, nonce: str | None = None) -> list[Message]:
    """The messages of request `index` of a cell, from 0. A cold one takes a `nonce`, unique to the run.

    A conversation that is longer than wanted stays whole: a question cut in half asks nothing.
    """
    chars = round(prompt_tokens(condition) * chars_per_token)
    ticket = f"Ticket {nonce}-{index}.\n" if condition.prefix is Prefix.COLD else ""
    return _long(condition.prompts, index % PROMPTS, chars, ticket)


def probe(kind: PromptKind, tokens: int, index: int, nonce: str) -> list[Message]:
    """A prompt of about so many tokens, to learn how long a token is. Always the same text, which begins like no other:
    some engines count only what their prefix cache does not know."""
    return _long(kind, 0, round(tokens * CHARS_PER_TOKEN), f"Probe {index} of {nonce}.\n")


def unknown(kind: PromptKind, index: int, chars: int, nonce: str) -> list[Message]:
    """A prompt of so many characters that begins like no other of this run or of one before."""
    return _long(kind, index, chars, f"{index} of {nonce}.\n")


def characters(messages: list[Message]) -> int:
    """What a prompt is measured by; a chat template's own words come on top."""
    return sum(len(message["content"]) for message in messages)


def _long(kind: PromptKind, index: int, chars: int, ticket: str = "") -> list[Message]:
    messages = choose(kind, _SEED, index)
    missing = chars - characters(messages)
    # The material is the beginning of all: what a prefix cache knows of one prompt serves all that share it.
    before = f"{material(kind, index % MATERIALS, missing)}\n\n" if missing > 0 else ""
    messages[0]["content"] = f"{ticket}{before}{messages[0]['content']}"
    return messages

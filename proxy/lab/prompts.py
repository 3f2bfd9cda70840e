"""Which conversation the n-th request of a load sends: a pure choice by kind, seed and index.

The texts are in lab/prompt_texts.py; sending them is in lab/loadcall.py.
"""

import random
from enum import StrEnum

from proxy.lab.prompt_texts import AGENTIC, CODING, PROSE, Conversation

Message = dict[str, str]


class PromptKind(StrEnum):
    """What a load talks about; speculation is worth most on code and least on unusual prose."""

    CODING = "coding"
    AGENTIC = "agentic"
    MIXED = "mixed"  # coding and agentic in equal numbers
    PROSE = "prose"


CONVERSATIONS: dict[PromptKind, tuple[Conversation, ...]] = {
    PromptKind.CODING: CODING,
    PromptKind.AGENTIC: AGENTIC,
    PromptKind.MIXED: CODING + AGENTIC,
    PromptKind.PROSE: PROSE,
}


def choose(kind: PromptKind, seed: int, index: int, nonce: str | None = None) -> list[Message]:
    """The messages of request `index` (from 0): the same for the same arguments, on every machine.

    Every conversation of the kind comes once before any comes again; each round has its own order. With a `nonce` the
    first message begins with text that no other index of that nonce has, so that no prefix cache of an engine holds it.
    """
    conversations = CONVERSATIONS[kind]
    turn, place = divmod(index, len(conversations))
    order = list(range(len(conversations)))
    random.Random(f"{seed}/{turn}").shuffle(order)
    messages = [{"role": role, "content": text} for role, text in conversations[order[place]]]
    if nonce is not None:
        messages[0]["content"] = f"Ticket {nonce}-{index}.\n{messages[0]['content']}"
    return messages

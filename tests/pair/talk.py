"""What a request says: a conversation of the load's kind, or all that was said so far in one that has several turns.

When requests come is in arrivals.py.
"""

from pair.arrivals import Arrival

from proxy.lab.prompts import Message, PromptKind, choose

# Some 3,300 tokens at the first turn and 650 more at each: enough for a cache to matter, within a context of 8,192.
_OPENING = 5


def messages(kind: PromptKind, seed: int, nonce: str, turns: int, one: Arrival) -> list[Message]:
    """The messages of a request. A turn begins with the whole of the one before it, and no two conversations, nor any
    two of different nonces, begin alike."""
    if turns == 1:
        return choose(kind, seed, one.index, nonce)
    first = one.conversation * (_OPENING + turns)
    found = choose(kind, seed, first, nonce)
    for place in range(1, _OPENING + one.turn):
        found += choose(kind, seed, first + place)
    return found

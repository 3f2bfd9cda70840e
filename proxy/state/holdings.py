"""Where conversations live, and the state that engines keep for clients: the shelf each was last on, in bounded memory.

Only hashes and counts are kept. What one engine has cached is in shelf.py, what follows from it in routing/affinity.py.
"""

from collections import OrderedDict
from typing import NamedTuple

from proxy.model import BASELINE, NOWHERE, SPECULATIVE, Role, Traits, Usage, Whereabouts
from proxy.state.shelf import BLOCK_TOKENS, Shelf

# Conversations, and stored responses and sessions, that are remembered: the most lately used of each, in some 45 MB
# when both are full. An engine holds a few hundred conversations at once, and stores responses until it is stopped.
MAX_CONVERSATIONS, MAX_STATES = 100_000, 50_000

# Bytes of a body for a token, as in routing/: a rough guess is enough to tell a long prompt from a short one.
_BYTES_PER_TOKEN = 4

# A longer prompt is none that any of these engines takes: such a body is images, of which bytes tell nothing.
MAX_PROMPT_TOKENS = 131_072


class Home(NamedTuple):
    """Where something was last: `taken_in` is what its shelf had taken in by then, `tokens` its prompt's length."""

    shelf: Shelf
    taken_in: int
    tokens: int


class Holdings:
    """Homes by hash. What is asked of it and told to it is of two shelves, speculative first."""

    __slots__ = ("_conversations", "_states")

    def __init__(self) -> None:
        self._conversations: OrderedDict[int, Home] = OrderedDict()
        self._states: OrderedDict[int, Home] = OrderedDict()

    def __len__(self) -> int:
        return len(self._conversations) + len(self._states)

    def whereabouts(self, traits: Traits, shelves: tuple[Shelf, Shelf]) -> Whereabouts:
        """Where what a request needs is."""
        speculative, baseline = shelves
        prefix, home = traits.prefix, None
        first, second = speculative.held(prefix) * BLOCK_TOKENS, baseline.held(prefix) * BLOCK_TOKENS
        if first != second:
            home = SPECULATIVE if first > second else BASELINE
        elif traits.conversation and (known := self._conversations.get(traits.conversation)) is not None:
            home = _role(known.shelf, shelves) if known.shelf.still_holds(known.taken_in) else None
            if home is not None and not prefix:  # a body that was not read
                tokens = min(known.tokens, traits.prompt_bytes // _BYTES_PER_TOKEN)
                first, second = (tokens, 0) if home is SPECULATIVE else (0, tokens)
        state = self.holder(traits.state, shelves) if traits.state else None
        if not first and not second and home is None and state is None:
            return NOWHERE
        return Whereabouts(first, second, home, state)

    def holder(self, state: int, shelves: tuple[Shelf, Shelf]) -> Role | None:
        """The role that holds a piece of state; None where nobody is known to."""
        known = self._states.get(state)
        if known is None or not known.shelf.lives_since(known.taken_in):
            return None
        return _role(known.shelf, shelves)

    def sent(self, traits: Traits, shelf: Shelf) -> None:
        """A request was sent to the engine of `shelf`, and that has read its prompt."""
        tokens = min(traits.prompt_bytes // _BYTES_PER_TOKEN, MAX_PROMPT_TOKENS)
        if traits.prefix:
            shelf.put(traits.prefix)
        else:
            shelf.take_in(tokens)
        if traits.conversation:
            home = Home(shelf, shelf.taken_in, tokens)
            _keep(self._conversations, traits.conversation, home, MAX_CONVERSATIONS)

    def made(self, state: int, shelf: Shelf) -> None:
        """The engine of `shelf` has made or used a piece of state."""
        if state:
            _keep(self._states, state, Home(shelf, shelf.taken_in, 0), MAX_STATES)


def told(shelf: Shelf, traits: Traits, believed_tokens: int, usage: Usage) -> None:
    """The engine of `shelf` counted the tokens of a request of whose prompt so many were believed to be there."""
    if traits.prefix and usage.prompt_tokens:
        believed = believed_tokens / max(believed_tokens, traits.prompt_bytes / _BYTES_PER_TOKEN)
        shelf.told(believed, usage.cached_tokens / usage.prompt_tokens)


def _role(shelf: Shelf, shelves: tuple[Shelf, Shelf]) -> Role | None:
    """Whose shelf it is; a reload may have dropped its backend."""
    if shelf is shelves[0]:
        return SPECULATIVE
    return BASELINE if shelf is shelves[1] else None


def _keep(homes: "OrderedDict[int, Home]", key: int, home: Home, most: int) -> None:
    homes[key] = home
    homes.move_to_end(key)
    if len(homes) > most:
        homes.popitem(last=False)

"""Which blocks of prompts one engine is believed to have cached: what was sent there, least recently used out first.

An approximation from outside: an engine also caches answers, and makes room as it likes. What it reports corrects the
room it is believed to have. Who is sent where is not here.
"""

from collections import OrderedDict
from collections.abc import Sequence

# Tokens in a block, as the hashes of protocol/ count them.
BLOCK_TOKENS = 512

# The room of an engine that tells none: less than any published for the models that this is for (344,000 to 3.3
# million tokens). Too much would believe in prefixes that are gone, too little forget those that are there.
DEFAULT_TOKENS = 262_144

# The most that is believed of any engine, 16 million tokens: it bounds a shelf to some megabytes.
MAX_BLOCKS = 32_768

# An engine that had less cached than half of what was believed is taken to have a twentieth less room; one that had it
# gets three hundredths of it back, so that the room shrinks for good where more than a third miss. Prompts that come
# together miss each other's without any room being short. Never below a quarter: what was sent a moment ago is there.
MISSED, FOUND, LEAST = 0.95, 1.03, 0.25
MISSES_BELOW = 0.5


class Shelf:
    """The blocks of one engine. `taken_in` only grows: tokens that were new to it, so that what was there once is gone
    when so many more have come as it has room for."""

    __slots__ = ("_blocks", "_cleared_at", "_reports", "_share", "_tokens", "taken_in")

    def __init__(self) -> None:
        self._blocks: OrderedDict[int, None] = OrderedDict()
        self._tokens = DEFAULT_TOKENS
        self._share = 1.0  # of that room, by what the engine reported
        self._reports = False  # whether it ever told of cached tokens: of none, engines do not tell
        self._cleared_at = 0
        self.taken_in = 0

    @property
    def room_tokens(self) -> int:
        """What it is believed to have room for."""
        return min(int(self._tokens * self._share), MAX_BLOCKS * BLOCK_TOKENS)

    @property
    def held_tokens(self) -> int:
        """What it is believed to hold."""
        return len(self._blocks) * BLOCK_TOKENS

    def held(self, prefix: Sequence[int]) -> int:
        """Blocks of the longest beginning of `prefix` that is there.

        A block is never older than those that go on from it, so that what is there of a prefix is a beginning of it.
        """
        blocks = self._blocks
        if not prefix or prefix[0] not in blocks:
            return 0
        there, missing = 1, len(prefix) + 1  # of so many the last is there, and is not
        while missing - there > 1:
            middle = (there + missing) // 2
            if prefix[middle - 1] in blocks:
                there = middle
            else:
                missing = middle
        return there

    def put(self, prefix: Sequence[int]) -> None:
        """A prompt that begins so was sent there."""
        blocks = self._blocks
        before = len(blocks)
        for block in reversed(prefix):
            if block in blocks:
                blocks.move_to_end(block)
            else:
                blocks[block] = None
        self.taken_in += (len(blocks) - before) * BLOCK_TOKENS
        self._make_room()

    def take_in(self, tokens: int) -> None:
        """A prompt of so many tokens was sent there of which nothing else is known."""
        self.taken_in += tokens

    def still_holds(self, taken_in: int) -> bool:
        """Whether what was last used when it had `taken_in` so many tokens is there."""
        return taken_in >= self._cleared_at and self.taken_in - taken_in <= self.room_tokens

    def lives_since(self, taken_in: int) -> bool:
        """Whether the engine is the same as when it had `taken_in` so many tokens."""
        return taken_in >= self._cleared_at

    def resize(self, tokens: int | None) -> None:
        """The engine has room for so many tokens; None where it does not say."""
        tokens = DEFAULT_TOKENS if tokens is None else tokens
        if tokens != self._tokens:
            self._tokens = tokens
            self._make_room()

    def told(self, believed: float, cached: float) -> None:
        """The engine reported to have had a share of a prompt cached of which another was `believed`, 0 to 1."""
        self._reports = self._reports or cached > 0.0
        if not self._reports or believed <= 0.0:
            return
        if cached < MISSES_BELOW * believed:
            self._share = max(LEAST, self._share * MISSED)
            self._make_room()
        else:
            self._share = min(1.0, self._share * FOUND)

    def forget(self) -> None:
        """The engine has begun anew: nothing is there."""
        self._blocks.clear()
        self._share, self._reports = 1.0, False
        self.taken_in += 1  # so that what was noted a moment ago is of the time before
        self._cleared_at = self.taken_in

    def empty(self) -> None:
        """What is there is not followed any more: nothing is believed to be there, though the engine lives on."""
        self._blocks.clear()
        self.taken_in += self.room_tokens + 1

    def _make_room(self) -> None:
        blocks, most = self._blocks, self.room_tokens // BLOCK_TOKENS
        while len(blocks) > most:
            blocks.popitem(last=False)

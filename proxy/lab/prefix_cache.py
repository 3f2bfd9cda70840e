"""Which prompt prefixes an engine still holds, in blocks, least recently used out first. No tokens, no clock.

A block that several sequences share is held once. Those in use stay however short room is; what sequences have for
themselves is counted by their engine.
"""

from collections.abc import Iterable, Sequence

# Tokens in a block: the granularity at which public conversation traces name prefixes. Smaller finds a little more.
BLOCK_TOKENS = 512


class PrefixCache:
    """Block fingerprints; each stands for the whole prefix up to its block's end. Of those that nobody uses the least
    recently used goes first."""

    def __init__(self) -> None:
        self._blocks: dict[int, None] = {}  # that nobody uses
        self._used: dict[int, int] = {}  # by how many

    @property
    def tokens(self) -> int:
        """Tokens held."""
        return (len(self._blocks) + len(self._used)) * BLOCK_TOKENS

    def held(self, blocks: Sequence[int]) -> int:
        """Tokens of the longest held prefix of `blocks`."""
        free, used = self._blocks, self._used
        missing = (place for place, block in enumerate(blocks) if block not in used and block not in free)
        return next(missing, len(blocks)) * BLOCK_TOKENS

    def in_use(self, blocks: Iterable[int]) -> int:
        """Tokens that cannot be let go of once `blocks` are in use too."""
        return (len(self._used) + sum(block not in self._used for block in blocks)) * BLOCK_TOKENS

    def use(self, blocks: Iterable[int]) -> None:
        """One more uses `blocks`; those that are not held are from now on."""
        for block in blocks:
            self._blocks.pop(block, None)
            self._used[block] = self._used.get(block, 0) + 1

    def release(self, blocks: Iterable[int]) -> None:
        """One less uses them. Those that nobody does any more count as used just now."""
        # The end of a prefix goes first when room is short, so it is older than its beginning.
        for block in reversed(list(blocks)):
            left = self._used.pop(block) - 1
            if left:
                self._used[block] = left
            else:
                self._blocks[block] = None

    def shrink(self, room_tokens: int) -> None:
        """Let go of the oldest blocks until what is held fits `room_tokens`, as far as they are not in use."""
        while self._blocks and self.tokens > room_tokens:
            del self._blocks[next(iter(self._blocks))]

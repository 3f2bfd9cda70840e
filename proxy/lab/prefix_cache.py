"""Which prompt prefixes an engine still holds, in blocks, least recently used out first. No tokens, no clock."""

from collections.abc import Iterable, Sequence

# Tokens in a block: the granularity at which public conversation traces name prefixes. Smaller finds a little more.
BLOCK_TOKENS = 512


class PrefixCache:
    """An LRU set of block fingerprints; each fingerprint stands for the whole prefix up to its block's end."""

    def __init__(self) -> None:
        self._blocks: dict[int, None] = {}

    @property
    def tokens(self) -> int:
        """Tokens held."""
        return len(self._blocks) * BLOCK_TOKENS

    def match(self, blocks: Sequence[int]) -> int:
        """Tokens of the longest held prefix of `blocks`; what matches counts as used just now."""
        held = self.held(blocks)
        self._touch(blocks[: held // BLOCK_TOKENS])
        return held

    def held(self, blocks: Sequence[int]) -> int:
        """The same for one who only looks."""
        missing = (place for place, block in enumerate(blocks) if block not in self._blocks)
        return next(missing, len(blocks)) * BLOCK_TOKENS

    def keep(self, blocks: Iterable[int], room_tokens: int) -> None:
        """Hold `blocks` as the most recently used, and let go of the oldest until all fits `room_tokens`."""
        self._touch(blocks)
        self.shrink(room_tokens)

    def shrink(self, room_tokens: int) -> None:
        """Let go of the oldest blocks until what is held fits `room_tokens`."""
        while self._blocks and self.tokens > room_tokens:
            del self._blocks[next(iter(self._blocks))]

    def _touch(self, blocks: Iterable[int]) -> None:
        # The end of a prefix goes first when room is short, so it is touched before its beginning.
        for block in reversed(list(blocks)):
            self._blocks.pop(block, None)
            self._blocks[block] = None

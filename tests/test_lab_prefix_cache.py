from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from proxy.lab.prefix_cache import BLOCK_TOKENS, PrefixCache


def keeping(*prompts: tuple[int, ...], room_blocks: int = 10) -> PrefixCache:
    """A cache that has held each prompt in its turn; nobody uses them any more."""
    cache = PrefixCache()
    for blocks in prompts:
        cache.use(blocks)
        cache.release(blocks)
        cache.shrink(room_blocks * BLOCK_TOKENS)
    return cache


def test_the_longest_held_prefix_counts_and_no_later_block() -> None:
    cache = keeping((1, 2, 3))
    assert cache.held((1, 2, 9, 3)) == 2 * BLOCK_TOKENS
    assert cache.held((9, 1)) == 0


def test_the_end_of_the_oldest_prefix_is_let_go_first() -> None:
    cache = keeping((1, 2), (8, 9), room_blocks=4)
    cache.shrink(3 * BLOCK_TOKENS)
    assert cache.held((1, 2)) == BLOCK_TOKENS
    assert cache.held((8, 9)) == 2 * BLOCK_TOKENS


def test_what_was_used_again_is_let_go_last() -> None:
    cache = keeping((1,), (2,), (1,))
    cache.shrink(BLOCK_TOKENS)
    assert (cache.held((1,)), cache.held((2,))) == (BLOCK_TOKENS, 0)


def test_what_is_in_use_stays_until_the_last_one_has_released_it() -> None:
    cache = keeping((1, 2))
    cache.use((1, 2))
    cache.use((1, 2, 3))
    cache.release((1, 2, 3))
    cache.shrink(0)
    assert cache.held((1, 2, 3)) == cache.tokens == 2 * BLOCK_TOKENS, "but what nobody uses goes"
    assert cache.in_use((1, 9)) == 3 * BLOCK_TOKENS
    cache.release((1, 2))
    cache.shrink(0)
    assert cache.tokens == 0


PROMPTS = st.lists(st.integers(0, 50), max_size=8, unique=True)


@given(st.lists(st.tuples(PROMPTS, st.booleans()), max_size=30), st.integers(0, 20))
def test_it_holds_what_is_used_once_and_never_more_than_that_and_its_room(
    prompts: list[tuple[list[int], bool]], room_blocks: int
) -> None:
    cache, used = PrefixCache(), list[list[int]]()
    for prompt, ends in prompts:
        cache.use(prompt)
        used.append(prompt)
        if ends:
            cache.release(used.pop(0))
        cache.shrink(room_blocks * BLOCK_TOKENS)
        in_use = len(Counter(block for blocks in used for block in blocks)) * BLOCK_TOKENS
        assert cache.in_use(()) == in_use
        assert in_use <= cache.tokens <= max(in_use, room_blocks * BLOCK_TOKENS)

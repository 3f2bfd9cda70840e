from hypothesis import given
from hypothesis import strategies as st

from proxy.lab.prefix_cache import BLOCK_TOKENS, PrefixCache


def test_the_longest_held_prefix_counts_and_no_later_block() -> None:
    cache = PrefixCache()
    cache.keep((1, 2, 3), room_tokens=10 * BLOCK_TOKENS)
    assert cache.match((1, 2, 9, 3)) == 2 * BLOCK_TOKENS
    assert cache.match((9, 1)) == 0


def test_the_end_of_the_oldest_prefix_is_let_go_first() -> None:
    cache = PrefixCache()
    cache.keep((1, 2), room_tokens=4 * BLOCK_TOKENS)
    cache.keep((8, 9), room_tokens=4 * BLOCK_TOKENS)
    cache.shrink(3 * BLOCK_TOKENS)
    assert cache.match((1, 2)) == BLOCK_TOKENS
    assert cache.match((8, 9)) == 2 * BLOCK_TOKENS


def test_what_was_matched_is_let_go_last() -> None:
    cache = PrefixCache()
    cache.keep((1,), room_tokens=4 * BLOCK_TOKENS)
    cache.keep((2,), room_tokens=4 * BLOCK_TOKENS)
    cache.match((1,))
    cache.shrink(BLOCK_TOKENS)
    assert cache.match((1,)) == BLOCK_TOKENS


@given(st.lists(st.lists(st.integers(0, 50), max_size=8, unique=True), max_size=30), st.integers(0, 20))
def test_it_never_holds_more_than_its_room(prompts: list[list[int]], blocks: int) -> None:
    cache = PrefixCache()
    for prompt in prompts:
        cache.keep(prompt, blocks * BLOCK_TOKENS)
        assert cache.tokens <= blocks * BLOCK_TOKENS

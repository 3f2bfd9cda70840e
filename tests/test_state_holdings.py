"""Where conversations and state live: the shelf each was last on, as long as it is there, in bounded memory."""

import tracemalloc
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.model import NOWHERE, ROLES, Traits, Usage, Whereabouts
from proxy.state import holdings
from proxy.state import shelf as shelf_module
from proxy.state.holdings import MAX_CONVERSATIONS, MAX_STATES, Holdings, told
from proxy.state.shelf import BLOCK_TOKENS, MAX_BLOCKS, Shelf

SPECULATIVE, BASELINE = ROLES
LONG = 40_000  # bytes of a body that is not read


def chain(name: int, length: int) -> tuple[int, ...]:
    return tuple(hash((name, at)) for at in range(length))


def asks(prefix: tuple[int, ...] = (), conversation: int = 0, state: int = 0) -> Traits:
    return Traits(prompt_bytes=LONG, prefix=prefix, conversation=conversation, state=state)


def shelves() -> tuple[Shelf, Shelf]:
    return Shelf(), Shelf()


def test_a_prompt_is_at_home_where_more_of_it_is_cached() -> None:
    book, both = Holdings(), shelves()
    book.sent(asks(chain(1, 4)), both[0])
    book.sent(asks(chain(1, 9)), both[1])
    assert book.whereabouts(asks(chain(1, 20)), both) == (4 * BLOCK_TOKENS, 9 * BLOCK_TOKENS, BASELINE, None)
    assert book.whereabouts(asks(chain(2, 20)), both) is NOWHERE


def test_a_conversation_is_at_home_where_it_was_last_when_both_have_as_much_of_it() -> None:
    book, both = Holdings(), shelves()
    for shelf in both:
        book.sent(asks(chain(1, 2), conversation=5), shelf)
    where = book.whereabouts(asks(chain(1, 3), conversation=5), both)
    assert where == (2 * BLOCK_TOKENS, 2 * BLOCK_TOKENS, BASELINE, None)
    assert book.whereabouts(asks(chain(1, 3)), both).home is None


def test_a_body_that_was_not_read_is_cached_where_its_conversation_was_last() -> None:
    book, both = Holdings(), shelves()
    book.sent(asks(conversation=5), both[0])
    assert book.whereabouts(asks(conversation=5), both) == (LONG // 4, 0, SPECULATIVE, None)
    assert book.whereabouts(asks(conversation=5)._replace(prompt_bytes=400), both)[0] == 100


def test_a_conversation_has_no_home_once_as_much_has_come_as_there_is_room_for() -> None:
    book, both = Holdings(), shelves()
    both[0].resize(LONG // 4)
    book.sent(asks(conversation=5), both[0])
    book.sent(asks(conversation=6), both[0])
    assert book.whereabouts(asks(conversation=5), both).home is SPECULATIVE
    book.sent(asks(conversation=7), both[0])
    assert book.whereabouts(asks(conversation=5), both) is NOWHERE


def test_state_is_where_it_was_made_until_its_engine_begins_anew_or_is_dropped() -> None:
    book, both = Holdings(), shelves()
    book.made(3, both[1])
    both[1].take_in(10**9)
    assert book.whereabouts(asks(state=3), both) == Whereabouts(state=BASELINE)
    assert book.holder(3, (both[1], Shelf())) is SPECULATIVE
    assert book.holder(3, shelves()) is None
    assert book.holder(4, both) is None
    both[1].forget()
    assert book.holder(3, both) is None


def test_state_without_a_name_is_not_remembered() -> None:
    book, both = Holdings(), shelves()
    book.made(0, both[0])
    assert book.holder(0, both) is None
    assert len(book) == 0


def test_what_an_engine_counted_is_held_against_what_was_believed() -> None:
    shelf = Shelf()
    shelf.resize(100 * BLOCK_TOKENS)
    traits = asks(chain(1, 19))
    for cached in (9000, *[100] * 6):
        told(shelf, traits, 9000, Usage(9800, 10, cached))
    assert shelf.room_tokens < 75 * BLOCK_TOKENS
    for traits in (asks(), asks(chain(1, 19))):
        told(shelf, traits, 9000, Usage())  # it did not count
    assert shelf.room_tokens > 70 * BLOCK_TOKENS


def test_only_so_much_is_remembered_and_the_oldest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holdings, "MAX_CONVERSATIONS", 3)
    monkeypatch.setattr(holdings, "MAX_STATES", 3)
    book, both = Holdings(), shelves()
    for number in (1, 2, 3, 1, 4):
        book.sent(asks(conversation=number), both[0])
        book.made(number, both[0])
    assert len(book) == 6
    assert [book.holder(number, both) for number in (1, 2, 3, 4)] == [SPECULATIVE, None, SPECULATIVE, SPECULATIVE]
    assert book.whereabouts(asks(conversation=2), both) is NOWHERE
    assert book.whereabouts(asks(conversation=1), both).home is SPECULATIVE


STEPS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 1), st.integers(0, 6), st.integers(0, 9), st.integers(0, 40)),
    max_size=50,
)


@given(STEPS)
def test_no_book_exceeds_its_bounds_and_all_that_it_says_is_of_the_two(steps: list[tuple[int, ...]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(holdings, "MAX_CONVERSATIONS", 4)
        patch.setattr(holdings, "MAX_STATES", 4)
        book, both = Holdings(), shelves()
        both[0].resize(20 * BLOCK_TOKENS)
        for act, side, name, key, length in steps:
            traits = asks(chain(name, length), key, key)
            if act == 0:
                book.sent(traits, both[side])
            elif act == 1:
                book.made(key, both[side])
            elif act == 2:
                both[side].forget()
            else:
                told(both[side], traits, length * BLOCK_TOKENS, Usage(length, 1, min(key, length)))
            where = book.whereabouts(traits, both)
            assert where == book.whereabouts(traits, both)
            assert len(book) <= 8
            assert 0 <= where.speculative_tokens <= max(20, length) * BLOCK_TOKENS
            assert where.home in (None, *ROLES)
            assert where.state in (None, *ROLES)


# What a hundred thousand conversations may take, and by how many times fewer are tried: tracing is slow.
MOST_BYTES, FEWER = 64 << 20, 32


def test_a_hundred_thousand_conversations_of_several_turns_fit_64_mib(monkeypatch: pytest.MonkeyPatch) -> None:
    conversations = MAX_CONVERSATIONS // FEWER
    for module, name, most in (
        (holdings, "MAX_CONVERSATIONS", conversations),
        (holdings, "MAX_STATES", MAX_STATES // FEWER),
        (shelf_module, "MAX_BLOCKS", MAX_BLOCKS // FEWER),
    ):
        monkeypatch.setattr(module, name, most)
    rng = Random(1)
    tracemalloc.start()
    try:
        book, both = Holdings(), shelves()
        for shelf in both:
            shelf.resize(10**9)
        for turn in range(3):
            for number in range(conversations):
                key = hash(("conversation", number))
                traits = Traits(prompt_bytes=2048 * turn + number, prefix=chain(key, turn + 1), conversation=key)
                book.sent(traits, both[rng.random() < 0.5])
                book.made(hash((key, turn)), both[0])
        used_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(book) == (MAX_CONVERSATIONS + MAX_STATES) // FEWER
    assert both[0].held_tokens == MAX_BLOCKS // FEWER * BLOCK_TOKENS
    assert used_bytes <= MOST_BYTES / FEWER, f"{used_bytes / 2**20:.1f} MiB"

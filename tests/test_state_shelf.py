"""What an engine is believed to have cached: how prompts begin, the latest used, no more than it has room for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.state.shelf import BLOCK_TOKENS, DEFAULT_TOKENS, LEAST, MAX_BLOCKS, Shelf


def chain(name: int, length: int) -> tuple[int, ...]:
    """A prompt of its own."""
    return tuple(hash((name, at)) for at in range(length))


def shelf(blocks: int) -> Shelf:
    made = Shelf()
    made.resize(blocks * BLOCK_TOKENS)
    return made


def test_what_was_sent_is_held_as_far_as_two_prompts_begin_alike() -> None:
    kept = Shelf()
    kept.put(chain(1, 9))
    assert kept.held(chain(1, 9)) == 9
    assert kept.held(chain(1, 4)) == 4
    assert kept.held((*chain(1, 4), *chain(2, 4))) == 4
    assert kept.held(chain(2, 4)) == kept.held(()) == 0


def test_the_least_lately_used_goes_first_and_the_end_of_a_prompt_before_its_beginning() -> None:
    kept = shelf(8)
    kept.put(chain(1, 4))
    kept.put(chain(2, 4))
    kept.put(chain(1, 4))
    kept.put(chain(3, 2))
    assert [kept.held(chain(name, 4)) for name in (1, 2, 3)] == [4, 2, 2]


def test_only_what_is_new_is_taken_in() -> None:
    kept = Shelf()
    kept.put(chain(1, 4))
    kept.put((*chain(1, 4), 7))
    assert kept.taken_in == 5 * BLOCK_TOKENS


def test_what_was_noted_is_gone_when_as_much_has_come_as_there_is_room_for() -> None:
    kept = shelf(4)
    kept.put(chain(1, 2))
    noted = kept.taken_in
    kept.put(chain(2, 4))
    assert kept.still_holds(noted)
    kept.take_in(1)
    assert not kept.still_holds(noted)
    assert kept.lives_since(noted)


def test_an_engine_that_begins_anew_holds_nothing_of_the_moment_before() -> None:
    kept = Shelf()
    kept.put(chain(1, 3))
    noted = kept.taken_in
    kept.forget()
    assert kept.held(chain(1, 3)) == kept.held_tokens == 0
    assert not kept.still_holds(noted)
    assert not kept.lives_since(noted)
    kept.put(chain(1, 3))
    assert kept.lives_since(kept.taken_in)


def test_an_engine_that_keeps_no_prefixes_holds_none() -> None:
    kept = Shelf()
    kept.put(chain(1, 3))
    kept.resize(0)
    assert kept.held(chain(1, 3)) == 0
    kept.put(chain(1, 3))
    assert kept.held(chain(1, 3)) == 0
    kept.resize(None)
    assert kept.room_tokens == DEFAULT_TOKENS


def test_an_engine_that_had_less_than_was_believed_is_believed_to_have_less_room() -> None:
    kept = shelf(100)
    kept.put(chain(1, 100))
    kept.told(1.0, 1.0)
    for _ in range(12):
        kept.told(0.9, 0.1)
    assert kept.room_tokens < 0.6 * 100 * BLOCK_TOKENS
    assert kept.held(chain(1, 100)) < 60
    for _ in range(100):
        kept.told(0.9, 0.9)
    assert kept.room_tokens == 100 * BLOCK_TOKENS


def test_it_is_never_believed_to_have_hardly_any_room() -> None:
    kept = shelf(100)
    kept.told(1.0, 1.0)
    for _ in range(500):
        kept.told(1.0, 0.0)
    assert kept.room_tokens == int(LEAST * 100 * BLOCK_TOKENS)


def test_an_engine_that_never_tells_of_cached_tokens_is_not_taken_to_have_none() -> None:
    kept = shelf(100)
    for _ in range(9):
        kept.told(1.0, 0.0)
    assert kept.room_tokens == 100 * BLOCK_TOKENS


PUT = st.tuples(st.just("put"), st.integers(0, 9), st.integers(0, 30))
STEPS = st.lists(
    PUT
    | PUT
    | st.tuples(st.just("resize"), st.none() | st.integers(0, 10**9), st.just(0))
    | st.tuples(st.just("told"), st.floats(0, 1), st.floats(0, 1))
    | st.tuples(st.just("forget"), st.none(), st.none()),
    max_size=60,
)


@given(STEPS)
def test_no_shelf_holds_more_than_its_room_and_what_it_holds_of_a_prompt_is_a_beginning(steps: list[tuple]) -> None:  # type: ignore[type-arg]
    kept = Shelf()
    for name, first, second in steps:
        before = kept.taken_in
        if name == "put":
            kept.put(chain(first, second))
        elif name == "resize":
            kept.resize(first)
        elif name == "told":
            kept.told(first, second)
        else:
            kept.forget()
        assert kept.taken_in >= before
        assert kept.held_tokens <= min(kept.room_tokens, MAX_BLOCKS * BLOCK_TOKENS)
        for number in range(10):
            held = kept.held(chain(number, 30))
            assert all(kept.held(chain(number, at)) == at for at in range(1, held + 1))
            assert all(kept.held(chain(number, at)[-1:]) == 0 for at in range(held + 1, 31))


@pytest.mark.parametrize("prefix", [(5, 5, 5), (1, 2, 1, 2), tuple(range(999))])
def test_hashes_that_are_no_chain_break_nothing(prefix: tuple[int, ...]) -> None:
    kept = shelf(10)
    kept.put(prefix)
    assert 0 <= kept.held(prefix) <= len(prefix)
    assert kept.held_tokens <= kept.room_tokens

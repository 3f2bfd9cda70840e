"""Sparklines and bars: as long as asked, in order, and something is never drawn as nothing."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.terminal.bars import ASCII_BLOCKS, BLOCKS, bar, sparkline

VALUES = st.lists(st.none() | st.floats(0, 1e9), max_size=80)


def test_a_curve_is_drawn_from_the_lowest_block_to_the_highest() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], 7, 60) == BLOCKS
    assert sparkline([0, None, 7], 7, 60, ASCII_BLOCKS) == "_ #"


def test_the_last_values_are_drawn_where_there_is_no_room_for_all() -> None:
    assert sparkline([7, 0, 7], 7, 2) == BLOCKS[0] + BLOCKS[-1]


def test_a_single_sequence_among_thousands_is_seen() -> None:
    assert sparkline([0, 1, 5000], 5000, 3) == BLOCKS[0] + BLOCKS[1] + BLOCKS[-1]


@given(VALUES, st.floats(0, 1e9), st.integers(1, 60))
def test_every_value_is_one_character_and_higher_ones_are_never_lower(
    values: list[float | None], most: float, width: int
) -> None:
    drawn = sparkline(values, most, width)
    assert len(drawn) == min(len(values), width)
    seen = [(value, BLOCKS.index(c)) for value, c in zip(values[-width:], drawn, strict=True) if value is not None]
    assert [level for _, level in sorted(seen)] == sorted(level for _, level in seen)


@given(st.floats(-1, 2), st.integers(0, 60))
def test_a_bar_is_as_long_as_asked(part: float, width: int) -> None:
    drawn = bar(part, width)
    assert len(drawn) == width
    assert drawn == "#" * drawn.count("#") + "-" * drawn.count("-")

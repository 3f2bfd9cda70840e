"""Numbers as people read them: rounded, with units, never in exponents."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.model import Role
from proxy.telling.figures import about, count, favoured, seconds, smooth, title


@pytest.mark.parametrize(
    ("value_s", "said"),
    [
        (0.0, "under 0.001 s"),
        (0.00099, "under 0.001 s"),
        (0.0213, "0.021 s"),
        (0.999, "1 s"),
        (3.21, "3.2 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (119.4, "119 s"),
        (180.0, "3 min"),
        (86_400.0, "24 h"),
        (float("inf"), "an unknown time"),
        (float("nan"), "an unknown time"),
    ],
)
def test_a_duration_is_told_in_two_digits_and_the_unit_that_fits(value_s: float, said: str) -> None:
    assert seconds(value_s) == said


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_no_duration_has_an_exponent_or_more_than_four_digits_behind_the_point(value_s: float) -> None:
    said = seconds(value_s)
    assert not re.search(r"\de|nan|inf\b|\.\d{5}", said)


@given(st.floats(0.001, 119.0))
def test_a_duration_is_told_within_a_twentieth(value_s: float) -> None:
    assert abs(float(seconds(value_s).split()[0]) - value_s) <= value_s / 19


def test_one_thing_is_single_and_thousands_are_parted() -> None:
    assert (count(1, "token"), count(0, "token"), count(8192, "token")) == ("1 token", "0 tokens", "8,192 tokens")


def test_a_smoothed_count_has_one_digit_behind_the_point() -> None:
    assert (smooth(3.14159), smooth(float("nan"))) == ("3.1", "an unknown number")


def test_a_role_begins_a_sentence() -> None:
    assert title(Role.BASELINE) == "Baseline"


def test_an_estimate_has_two_digits() -> None:
    assert [about(each) for each in (0.2, 7.4, 256.0, 1320.0, float("nan"))] == ["1", "7", "260", "1,300", "unknown"]


def test_what_was_favoured_a_moment_ago_is_new_and_no_part_of_a_second() -> None:
    assert [favoured(each) for each in (0.0, 1.2, 42.0)] == ["newly favoured", "newly favoured", "favoured for 42 s"]
    assert favoured(float("inf")) == "favoured since the start"

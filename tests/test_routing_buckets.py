"""Buckets of context: the one that is found is the one that the curves name, and a gap leaves none."""

import pytest
from fakes.speeds import bucket, curves
from hypothesis import given
from hypothesis import strategies as st

from proxy.routing.buckets import buckets
from proxy.routing.curves import SpeedCurve


def same(curve: SpeedCurve, _prefill_tok_s: float | None) -> SpeedCurve:
    return curve


@given(st.lists(st.integers(0, 200_000), min_size=1, max_size=5, unique=True).map(sorted), st.integers(0, 400_000))
def test_the_bucket_is_the_one_that_the_curves_name(lengths: list[int], tokens: int) -> None:
    known = curves(*(bucket({1: 10.0 + length}, {1: 5.0}, length) for length in lengths))
    found = buckets(known, same)
    assert found is not None
    nearest = known.at_context(tokens)
    assert found.at_context(tokens) == (nearest.speculative, nearest.baseline)


@pytest.mark.parametrize(("lengths", "tokens", "found"), [((0, 1), 2, 0), ((3, 12), 6, 3), ((1, 4), 2, 1)])
def test_of_two_buckets_as_near_the_shorter_one_is_taken(lengths: tuple[int, ...], tokens: int, found: int) -> None:
    known = curves(*(bucket({1: 10.0 + length}, {1: 5.0}, length) for length in lengths))
    listed = buckets(known, same)
    assert listed is not None
    assert listed.at_context(tokens)[0].tok_s(1) == 10.0 + found
    assert known.at_context(tokens).context_tokens == found


def test_curves_with_a_gap_give_none() -> None:
    whole, half = bucket({1: 50.0}, {1: 40.0}), bucket({1: 50.0}, None, 9000)
    assert buckets(curves(whole), same) is not None
    assert buckets(curves(whole, half), same) is None
    assert buckets(None, same) is None

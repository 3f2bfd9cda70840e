"""Differences and whether they are more than noise."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.lab.replay.noise import MAX_BLOCKS, MIN_BLOCKS, Blocks, blocks, differences

COUNT = 40


def sums(rng: np.random.Generator, factors: list[float], spread: float) -> Blocks:
    """Ways that take so many times as long, each with noise of its own in each block on top of what all share."""
    shared = rng.lognormal(0.0, 0.5, COUNT)
    own = rng.lognormal(0.0, spread, (len(factors), COUNT))
    return Blocks(shared * own * np.array(factors)[:, None] * 100, np.full(COUNT, 100.0), 60.0)


def test_ways_that_differ_by_luck_alone_are_seldom_told_apart() -> None:
    rng, wrong = np.random.default_rng(5), 0
    for trial in range(200):
        told = differences(sums(rng, [1.0] * 9, 0.05), 0, resamples=300, seed=trial)
        wrong += any(each.sure for each in told[1:])
    # One in twenty where the intervals of all eight hold at once; one by one they would be wrong in a third.
    assert wrong / 200 < 0.11


def test_a_difference_that_all_blocks_share_is_sure_though_the_blocks_differ_much() -> None:
    found = differences(sums(np.random.default_rng(1), [1.0, 0.9], 0.01), 0)[1]
    assert found.sure
    assert found.low is not None
    assert found.high is not None
    assert found.low < found.share < found.high < 0.0
    assert found.share == pytest.approx(-0.1, abs=0.01)


def test_the_present_way_differs_from_itself_by_nothing() -> None:
    same = differences(sums(np.random.default_rng(1), [1.0, 1.1], 0.1), 0)[0]
    assert same == (0.0, 0.0, 0.0)
    assert not same.sure


def test_a_short_log_gives_a_difference_without_an_interval() -> None:
    at_s = [float(n) for n in range(300)]
    took_s = [[1.0] * 300, [2.0] * 300]
    long, short = blocks(at_s, took_s, 1.0), blocks(at_s, took_s, 10.0)
    assert len(long.counts) >= MIN_BLOCKS > len(short.counts)
    assert differences(long, 0)[1].half_width is not None
    only = differences(short, 0)[1]
    assert (only.low, only.high, only.sure) == (None, None, False)
    assert only.share == pytest.approx(1.0)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.0, 1e6), st.floats(1e-6, 1e6)), min_size=2, max_size=50),
    st.floats(1e-6, 1e6),
)
def test_no_request_is_lost_in_blocks(requests: list[tuple[float, float]], mean_s: float) -> None:
    at_s, took_s = zip(*sorted(requests), strict=True)
    found = blocks(at_s, [took_s], mean_s)
    assert found.counts.sum() == len(requests)
    assert found.sums.sum() == pytest.approx(sum(took_s))
    assert 1 <= len(found.counts) <= MAX_BLOCKS
    assert found.counts.min() > 0


def test_more_blocks_make_an_interval_narrower() -> None:
    found = sums(np.random.default_rng(2), [1.0, 0.95], 0.05)
    few = Blocks(found.sums[:, :MIN_BLOCKS], found.counts[:MIN_BLOCKS], 60.0)
    wide, narrow = (differences(each, 0)[1].half_width for each in (few, found))
    assert wide is not None
    assert narrow is not None
    assert narrow < 0.8 * wide

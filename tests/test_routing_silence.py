"""When an answer is late, and when a silent backend is kept from requests."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.model import BASELINE, SPECULATIVE, BackendLoad, LoadSnapshot
from proxy.routing.silence import TIMES, is_silent, late_s

SECONDS = st.floats(0.0, 1000.0)


@pytest.mark.parametrize(
    ("took_s", "after_s"),
    [([], 5.0), ([0.002, 0.004], 1.0), ([0.7, 0.002], 1.4), ([1.1], 2.2), ([4.9, 0.01], 5.0)],
    ids=["unknown", "quick", "once slower", "slow", "as slow as may be"],
)
def test_an_answer_is_late_by_what_its_page_took_of_late(took_s: list[float], after_s: float) -> None:
    assert late_s(took_s, 1.0, 5.0) == after_s


@given(st.lists(SECONDS, min_size=1), SECONDS, SECONDS)
def test_an_answer_is_never_late_that_takes_no_longer_than_others_did(
    took_s: list[float], least_s: float, limit_s: float
) -> None:
    found = late_s(took_s, least_s, limit_s)
    assert found <= limit_s
    assert found == limit_s or found >= max(least_s, TIMES * max(took_s))


def test_only_one_of_two_is_kept_from_requests_and_only_beside_one_that_serves() -> None:
    for silent, other_silent, eligible in product((True, False), repeat=3):
        loads = LoadSnapshot(
            0.0,
            BackendLoad(SPECULATIVE, silent=silent),
            BackendLoad(BASELINE, eligible=eligible, silent=other_silent),
        )
        assert is_silent(loads, SPECULATIVE) is (silent and eligible and not other_silent)
        assert not (is_silent(loads, SPECULATIVE) and is_silent(loads, BASELINE))

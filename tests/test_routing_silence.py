"""When an answer is late, when a silent backend is kept from requests, and when it loses those that it has."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.model import BASELINE, SPECULATIVE, BackendLoad, LoadSnapshot
from proxy.routing.health import Health, HealthRules
from proxy.routing.silence import TIMES, is_silent, late_s, may_move, stands_still

SECONDS = st.floats(0.0, 1000.0)
HEALTHS = st.builds(Health, st.sampled_from((True, False, None)), doubtful=st.booleans())


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


@given(st.integers(1, 9), HEALTHS, st.integers(0, 20), SECONDS, SECONDS)
def test_a_backend_stands_still_when_as_many_probes_were_unanswered_as_take_one_out(
    most: int, health: Health, unanswered: int, silent_s: float, stood_s: float
) -> None:
    still = stands_still(HealthRules(max_misses=most), health, unanswered, silent_s, stood_s)
    if health.up is not False or not unanswered:
        assert not still, "it serves, or has said something"
    elif silent_s <= 2.0 * stood_s:
        assert not still, "it was as quiet before, and went on"
    else:
        assert still is (health.doubtful or unanswered >= most)


def test_what_it_has_may_go_to_one_that_serves_alone_and_never_both_ways() -> None:
    for silent, other_silent, eligible, other_eligible in product((True, False), repeat=4):
        loads = LoadSnapshot(
            0.0,
            BackendLoad(SPECULATIVE, eligible=eligible, silent=silent),
            BackendLoad(BASELINE, eligible=other_eligible, silent=other_silent),
        )
        assert may_move(loads, SPECULATIVE) is (other_eligible and not other_silent)
        if not eligible:
            assert not may_move(loads, BASELINE)

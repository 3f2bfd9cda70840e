"""Whom a failure is held against."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.routing.blame import MAX_SPARED, MAX_UNSURE, Fault, Suspicion, begin, end, excuse

SUSPICIOUS = end(begin(Suspicion()), Fault.REQUEST)


def spares(suspicion: Suspicion) -> bool:
    """Whether a failure that was not tried on both sides counts for nothing."""
    return excuse(suspicion, Fault.UNKNOWN)[0]


def test_untried_failure_is_the_backends_when_nothing_is_known() -> None:
    assert not spares(Suspicion())


def test_untried_failure_is_spared_while_a_trial_is_under_way() -> None:
    assert spares(begin(Suspicion()))


def test_untried_failure_is_spared_after_a_request_failed_on_both_sides() -> None:
    assert spares(SUSPICIOUS)


def test_untried_failure_is_the_backends_again_after_the_other_side_served_one() -> None:
    assert not spares(end(begin(SUSPICIOUS), Fault.BACKEND))


def test_suspicion_stays_when_a_trial_shows_nothing() -> None:
    assert end(begin(SUSPICIOUS), Fault.UNKNOWN) == SUSPICIOUS


@pytest.mark.parametrize("suspicion", [Suspicion(), SUSPICIOUS, begin(SUSPICIOUS)])
@pytest.mark.parametrize(("fault", "excused"), [(Fault.REQUEST, True), (Fault.BACKEND, False)])
def test_tried_failure_is_judged_by_what_was_shown_and_by_nothing_else(
    suspicion: Suspicion, fault: Fault, excused: bool
) -> None:
    assert excuse(suspicion, fault) == (excused, suspicion)


def test_suspicion_ends_when_nothing_is_tried_any_more() -> None:
    suspicion, answers = SUSPICIOUS, []
    for _ in range(MAX_SPARED + 2):
        excused, suspicion = excuse(suspicion, Fault.UNKNOWN)
        answers.append(excused)
    assert answers == [True] * MAX_SPARED + [False] * 2


def test_suspicion_begins_anew_with_each_request_that_fails_on_both_sides() -> None:
    _, worn = excuse(SUSPICIOUS, Fault.UNKNOWN)
    assert worn != SUSPICIOUS
    assert end(begin(worn), Fault.REQUEST) == SUSPICIOUS


def test_trials_that_show_nothing_for_long_spare_only_so_many() -> None:
    suspicion, answers = begin(Suspicion()), []
    for _ in range(MAX_UNSURE + 2):
        excused, suspicion = excuse(suspicion, Fault.UNKNOWN)
        answers.append(excused)
    assert answers == [True] * MAX_UNSURE + [False] * 2


@pytest.mark.parametrize("fault", [Fault.BACKEND, Fault.REQUEST])
def test_trial_that_shows_something_lets_later_ones_spare_anew(fault: Fault) -> None:
    _, worn = excuse(begin(Suspicion()), Fault.UNKNOWN)
    assert end(worn, fault).unsure == MAX_UNSURE


@given(st.lists(st.sampled_from(Fault), max_size=20))
def test_no_trial_is_left_over_when_all_have_ended(faults: list[Fault]) -> None:
    suspicion = Suspicion()
    for _ in faults:
        suspicion = begin(suspicion)
    for fault in faults:
        suspicion = end(suspicion, fault)
    assert suspicion.trials == 0

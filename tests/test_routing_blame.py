"""Whom a failure is held against."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.routing.blame import MAX_SPARED, Fault, Suspicion, begin, end, spare


def test_untried_failure_is_the_backends_when_nothing_is_known() -> None:
    assert not Suspicion().spares


def test_untried_failure_is_spared_while_a_trial_is_under_way() -> None:
    assert begin(Suspicion()).spares


def test_untried_failure_is_spared_after_a_request_failed_on_both_sides() -> None:
    assert end(begin(Suspicion()), Fault.REQUEST).spares


def test_untried_failure_is_the_backends_again_after_the_other_side_served_one() -> None:
    suspicious = end(begin(Suspicion()), Fault.REQUEST)
    assert not end(begin(suspicious), Fault.BACKEND).spares


def test_suspicion_stays_when_a_trial_shows_nothing() -> None:
    suspicious = end(begin(Suspicion()), Fault.REQUEST)
    assert end(begin(suspicious), Fault.UNKNOWN) == suspicious


@given(st.lists(st.sampled_from(Fault), max_size=20))
def test_no_trial_is_left_over_when_all_have_ended(faults: list[Fault]) -> None:
    suspicion = Suspicion()
    for _ in faults:
        suspicion = begin(suspicion)
    for fault in faults:
        suspicion = end(suspicion, fault)
    assert suspicion.trials == 0


def test_suspicion_ends_when_nothing_is_tried_any_more() -> None:
    suspicious = end(begin(Suspicion()), Fault.REQUEST)
    for _ in range(MAX_SPARED):
        assert suspicious.spares
        suspicious = spare(suspicious)
    assert not suspicious.spares


def test_suspicion_begins_anew_with_each_request_that_fails_on_both_sides() -> None:
    worn = spare(end(begin(Suspicion()), Fault.REQUEST))
    assert end(begin(worn), Fault.REQUEST) == end(begin(Suspicion()), Fault.REQUEST)


def test_failures_spared_while_a_trial_is_under_way_use_nothing_up() -> None:
    trying = begin(end(begin(Suspicion()), Fault.REQUEST))
    assert spare(trying) == trying


def test_nothing_is_spared_below_zero() -> None:
    assert spare(Suspicion()) == Suspicion()

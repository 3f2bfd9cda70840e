"""A backend that is silent: when it counts as such, what that does to decisions, and that anything it says ends it."""

import pytest
from fakes.rig import BASELINE, SPECULATIVE, Rig
from hypothesis import given
from hypothesis import strategies as st

from proxy.model import ROLES, Change, ChangeKind, Reason
from proxy.routing.health import Evidence


@pytest.fixture
def rig() -> Rig:
    """A rig whose engines are up and say nothing since their latest probes, of which none is late."""
    rig = Rig()
    for backend in rig.desk.backends:
        rig.desk.observe_health(backend, Evidence.HIT)
        rig.desk.listen(backend)
    rig.changes.clear()
    return rig


def test_requests_avoid_a_backend_from_its_silence_on_and_no_longer_than_until_it_speaks(rig: Rig) -> None:
    backend = rig.desk.backend(SPECULATIVE)
    assert rig.assign().decision.role is SPECULATIVE
    rig.desk.unanswered(backend)
    place = rig.assign()
    assert (place.decision.role, place.decision.reason) == (BASELINE, Reason.SILENT)
    assert place.decision.because.speculative_out == "silent"
    rig.desk.spoke(backend)
    assert rig.assign().decision.role is SPECULATIVE
    assert rig.changes == [
        Change(ChangeKind.SILENCE, SPECULATIVE, "false", "true"),
        Change(ChangeKind.SILENCE, SPECULATIVE, "true", "false"),
    ]
    assert rig.in_flight(SPECULATIVE) == 2
    assert rig.in_flight(BASELINE) == 1


def test_those_who_wait_are_looked_at_again_when_a_backend_falls_silent_and_when_it_speaks(rig: Rig) -> None:
    backend, before = rig.desk.backend(SPECULATIVE), rig.rooms
    rig.desk.unanswered(backend)
    rig.desk.spoke(backend)
    assert rig.rooms == before + 2


def test_one_of_which_something_came_since_its_probe_is_not_silent_though_the_answer_is_late(rig: Rig) -> None:
    backend = rig.desk.backend(SPECULATIVE)
    rig.desk.tokens_flowed(backend)
    rig.desk.unanswered(backend)
    assert not backend.silent


def test_tokens_end_a_silence(rig: Rig) -> None:
    backend = rig.desk.backend(SPECULATIVE)
    rig.desk.unanswered(backend)
    rig.desk.tokens_flowed(backend)
    assert not backend.silent
    assert rig.assign().decision.role is SPECULATIVE


def test_the_next_probe_does_not_end_a_silence(rig: Rig) -> None:
    backend = rig.desk.backend(SPECULATIVE)
    rig.desk.unanswered(backend)
    rig.desk.observe_health(backend, Evidence.MISS)
    rig.desk.listen(backend)
    assert backend.silent


def test_two_silent_ones_get_requests_as_if_they_were_not(rig: Rig) -> None:
    for backend in rig.desk.backends:
        rig.desk.unanswered(backend)
    place = rig.assign()
    assert (place.decision.role, place.decision.reason) == (SPECULATIVE, Reason.ROOM)


def test_one_that_is_down_is_not_said_to_be_silent_as_well(rig: Rig) -> None:
    backend = rig.desk.backend(SPECULATIVE)
    for _ in range(3):
        rig.desk.observe_health(backend, Evidence.MISS)
    rig.changes.clear()
    rig.desk.unanswered(backend)
    assert rig.changes == []


STEPS = st.lists(st.tuples(st.sampled_from(["listen", "unanswered", "spoke", "tokens_flowed"]), st.sampled_from(ROLES)))


@given(STEPS)
def test_only_one_that_is_unheard_is_silent_and_each_change_is_told_once(steps: list[tuple[str, str]]) -> None:
    rig = Rig()
    for backend in rig.desk.backends:
        rig.desk.observe_health(backend, Evidence.HIT)
    for name, role in steps:
        getattr(rig.desk, name)(rig.desk.backend(role))  # type: ignore[arg-type]
        for backend in rig.desk.backends:
            assert backend.unheard or not backend.silent
            told = [each.after for each in rig.changes if each.kind is ChangeKind.SILENCE and each.role is backend.role]
            assert told == ["true", "false"] * (len(told) // 2) + ["true"] * (len(told) % 2)
            assert (told[-1:] == ["true"]) is backend.silent

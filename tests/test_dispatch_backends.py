"""A backend that is silent: when it counts as such, what that does to decisions, and that anything it says ends it; and
one that stands still."""

import pytest
from fakes.rig import BASELINE, SPECULATIVE, Rig
from hypothesis import given
from hypothesis import strategies as st

from proxy.model import ROLES, Change, ChangeKind, Outcome, Reason
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


# What comes of a probe, or without one: whether anything was heard, and what it says of health.
RESULTS: dict[str, tuple[bool, Evidence | None]] = {
    "nothing": (False, Evidence.MISS),
    "refused": (True, Evidence.REFUSED),
    "broken": (True, Evidence.MISS),
    "500": (True, Evidence.MISS),
    "503": (True, Evidence.NOT_READY),
    "hit": (True, Evidence.HIT),
    "head": (True, None),
    "tokens": (True, None),
    "first byte late": (False, Evidence.SILENCE),
}


def bring(rig: Rig, result: str) -> None:
    """One probe with this result, or what came between two probes."""
    desk, backend = rig.desk, rig.desk.backend(SPECULATIVE)
    heard, evidence = RESULTS[result]
    if result in ("nothing", "refused", "broken", "500", "503", "hit"):
        desk.listen(backend)
        rig.now_s += 6.0
        if result == "nothing":
            desk.unanswered(backend)
    if result == "nothing":
        desk.gave_up(backend)
    elif result in ("refused", "broken"):
        desk.turned_away(backend)
    elif result == "tokens":
        desk.tokens_flowed(backend)
    elif heard:
        desk.spoke(backend)
    if evidence is not None:
        desk.observe_health(backend, evidence)


@given(st.lists(st.sampled_from(("nothing",) * 6 + tuple(RESULTS)), max_size=30))
def test_only_a_backend_that_is_down_and_leaves_every_probe_without_any_answer_stands_still(results: list[str]) -> None:
    rig = Rig()
    backend, told = rig.desk.backend(SPECULATIVE), []
    rig.desk.on_standstill = told.append
    rig.desk.observe_health(backend, Evidence.HIT)
    row, began_s, stood_s = 0, None, 0.0
    for result in results:
        before, asked_s = len(told), rig.now_s
        bring(rig, result)
        if result in ("nothing", "refused", "broken"):
            began_s = asked_s if began_s is None else began_s
        elif RESULTS[result][0]:
            if row and began_s is not None:
                stood_s = max(stood_s, rig.now_s - began_s)
            began_s = None
        if RESULTS[result][0]:
            row = 0
        elif result == "nothing":
            row += 1
        health = backend.health
        still = result == "nothing" and health.up is False and row >= (1 if health.doubtful else 3)
        still = still and began_s is not None and rig.now_s - began_s > 2.0 * stood_s
        assert told[before:] == [backend] * still
        if row:
            assert began_s is not None and backend.silence_s(rig.now_s) == pytest.approx(rig.now_s - began_s)
        elif not backend.silent:
            assert backend.silence_s(rig.now_s) is None


def test_generation_that_waited_in_vain_on_one_that_stands_still_leaves_no_doubt(rig: Rig) -> None:
    backend = rig.desk.backend(SPECULATIVE)
    place = rig.assign()
    for _ in range(3):
        bring(rig, "nothing")
    rig.desk.settle(place, Outcome.FAILED_BEFORE_COMMIT, unheard=True)
    assert (backend.health.up, backend.health.doubtful) == (False, False)


def test_generation_that_waited_in_vain_before_the_probes_did_leaves_doubt(rig: Rig) -> None:
    place = rig.assign()
    bring(rig, "nothing")
    rig.desk.settle(place, Outcome.FAILED_BEFORE_COMMIT, unheard=True)
    assert rig.desk.backend(SPECULATIVE).health.doubtful

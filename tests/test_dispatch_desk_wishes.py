"""The desk: what still counts after its client left, evidence from the wires, the operator's wishes, reloads."""

from dataclasses import replace
from typing import Any

import pytest
from fakes.rig import BASELINE, LINGER_S, SPECULATIVE, Rig, plan
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.dispatch import Assignment
from proxy.model import (
    Change,
    ChangeKind,
    CircuitState,
    EngineFacts,
    EngineLoad,
    Outcome,
    Placement,
    Policy,
    Reason,
)
from proxy.routing.breaker import Event
from proxy.routing.health import Evidence
from proxy.routing.retries import RetryRules


@pytest.fixture
def rig() -> Rig:
    return Rig()


# ---------------------------------------------------------------- what still counts after its client has left

BEFORE, GONE_WAITING = Outcome.FAILED_BEFORE_COMMIT, Outcome.CLIENT_GONE_WAITING
GONE_STREAMING, CUT, DOWN = Outcome.CLIENT_GONE_IN_STREAM, Outcome.FAILED_AFTER_COMMIT, Outcome.SHUT_DOWN


@pytest.mark.parametrize(
    ("version", "outcome", "unheard", "lingers"),
    [
        ("0.5.23", Outcome.FINISHED, False, False),
        ("0.5.23", GONE_WAITING, True, True),  # before the first token engines look only now and then
        ("0.5.23", GONE_STREAMING, False, False),  # once tokens flow they notice at once
        ("0.5.23", BEFORE, False, False),  # the engine refused or broke off by itself
        ("0.5.23", BEFORE, True, True),  # we gave up waiting
        ("0.5.23", DOWN, True, True),
        (None, GONE_WAITING, True, True),
        ("0.5.18", Outcome.FINISHED, False, False),
        ("0.5.18", GONE_WAITING, True, True),
        ("0.5.18", GONE_STREAMING, False, True),
        ("0.5.19", GONE_STREAMING, False, True),
        ("0.5.19", CUT, False, True),
        ("0.5.19", DOWN, False, True),
        ("0.5.19", BEFORE, False, False),
        ("0.5.20", GONE_STREAMING, False, False),
    ],
)
def test_a_sequence_lingers_where_its_engine_may_decode_on(
    rig: Rig, version: str | None, outcome: Outcome, unheard: bool, lingers: bool
) -> None:
    rig.desk.learn_facts(rig.desk.backend(SPECULATIVE), EngineFacts(version=version))
    rig.desk.settle(rig.assign(weight=2), outcome, unheard=unheard)
    assert rig.in_flight(SPECULATIVE) == (2 if lingers else 0)
    rig.now_s += LINGER_S
    assert rig.in_flight(SPECULATIVE) == 0


def test_a_ghost_counts_until_requests_usually_end(rig: Rig) -> None:
    rig.desk.learn_facts(rig.desk.backend(SPECULATIVE), EngineFacts(version="0.5.18"))
    first = rig.assign()
    rig.now_s += 60.0
    rig.finish(first)
    left = rig.assign()
    rig.now_s += 20.0
    rig.desk.settle(left, GONE_STREAMING)
    rig.now_s += 39.9
    assert rig.in_flight(SPECULATIVE) == 1
    rig.now_s += 0.1
    assert rig.in_flight(SPECULATIVE) == 0


@pytest.mark.parametrize(("unheard", "counts"), [(True, True), (False, False)])
def test_an_answer_that_had_not_begun_counts_until_its_usual_end_where_leaving_is_not_noticed(
    rig: Rig, unheard: bool, counts: bool
) -> None:
    rig.desk.learn_facts(rig.desk.backend(SPECULATIVE), EngineFacts(notices_leaving=False))
    first = rig.assign()
    rig.now_s += 60.0
    rig.finish(first)
    left = rig.assign()
    rig.now_s += 20.0
    rig.desk.settle(left, GONE_STREAMING, unheard=unheard)
    rig.now_s += 39.9
    assert rig.in_flight(SPECULATIVE) == (1 if counts else 0)
    rig.now_s += 0.1
    assert rig.in_flight(SPECULATIVE) == 0


def test_a_request_that_was_never_sent_does_not_linger(rig: Rig) -> None:
    rig.desk.learn_facts(rig.desk.backend(SPECULATIVE), EngineFacts(version="0.5.18"))
    place = rig.assign()
    rig.desk.take_back(place)
    assert (rig.in_flight(SPECULATIVE), place.lease.outcome) == (0, GONE_WAITING)


# ---------------------------------------------------------------- evidence from the wires


def test_health_changes_are_announced_once_and_may_make_room(rig: Rig) -> None:
    backend = rig.desk.backend(SPECULATIVE)
    for evidence in (Evidence.HIT, *[Evidence.MISS] * 5, *[Evidence.HIT] * 5):
        rig.desk.observe_health(backend, evidence)
    told = [(change.before, change.after) for change in rig.changes]
    assert told == [("unknown", "up"), ("up", "down"), ("down", "up")]
    assert rig.rooms == 3


def test_flowing_tokens_forgive_missed_probes(rig: Rig) -> None:
    backend = rig.desk.backend(SPECULATIVE)
    rig.desk.observe_health(backend, Evidence.HIT)
    for _ in range(10):
        rig.desk.observe_health(backend, Evidence.MISS)
        rig.desk.tokens_flowed(backend)
    assert backend.health.up is True


def test_a_higher_limit_of_the_engine_may_make_room(rig: Rig) -> None:
    backend = rig.desk.backend(SPECULATIVE)
    for limit in (48, 48, 64):
        rig.desk.observe_load(backend, EngineLoad(running=0, waiting=0, max_running_requests=limit))
    assert (rig.rooms, backend.max_in_flight, backend.load_at_s) == (2, 64, rig.now_s)


def test_every_settling_may_make_room(rig: Rig) -> None:
    rig.finish(rig.assign())
    assert rig.rooms == 1


# ---------------------------------------------------------------- the operator's wishes


def test_a_pin_sends_everything_to_one_role_until_it_is_taken_back(rig: Rig) -> None:
    rig.desk.pin(BASELINE)
    rig.desk.pin(BASELINE)
    assert rig.assign().decision.reason is Reason.OPERATOR_PIN
    rig.desk.pin(None)
    assert rig.assign().decision.role is SPECULATIVE
    assert [(change.before, change.after) for change in rig.changes] == [("none", BASELINE), (BASELINE, "none")]


def test_a_pinned_backend_that_is_down_fails_over(rig: Rig) -> None:
    rig.desk.pin(BASELINE)
    rig.desk.observe_health(rig.desk.backend(BASELINE), Evidence.MISS)
    assert rig.assign().decision.role is SPECULATIVE


def test_a_draining_backend_gets_nothing_new_and_keeps_what_it_has(rig: Rig) -> None:
    running = rig.assign()
    rig.desk.drain(SPECULATIVE, draining=True)
    rig.desk.drain(SPECULATIVE, draining=True)
    assert rig.assign().decision.role is BASELINE
    assert rig.in_flight(SPECULATIVE) == 1
    rig.finish(running)
    rig.desk.drain(SPECULATIVE, draining=False)
    assert rig.assign().decision.role is SPECULATIVE
    assert rig.kinds() == {ChangeKind.DRAIN: 2}


def test_with_everything_down_requests_go_as_if_all_were_up(rig: Rig) -> None:
    for backend in rig.desk.backends:
        rig.desk.observe_health(backend, Evidence.MISS)
    places = [rig.assign() for _ in range(10)]
    assert {place.decision.reason for place in places} == {Reason.ALL_DOWN}
    assert (rig.in_flight(SPECULATIVE), rig.in_flight(BASELINE)) == (9, 1)


# ---------------------------------------------------------------- reload


def test_a_reload_keeps_book_circuit_health_and_drain_of_a_backend_whose_url_stays(rig: Rig) -> None:
    running = rig.assign(weight=3)
    rig.desk.observe_health(rig.desk.backend(BASELINE), Evidence.MISS)
    rig.desk.drain(SPECULATIVE, draining=True)
    before = rig.desk.backends
    rig.desk.reload(plan(limits=(5, 6), leave_at=2, enter_at=1))
    assert [after is kept for after, kept in zip(rig.desk.backends, before, strict=True)] == [True, True]
    assert [backend.max_in_flight for backend in rig.desk.backends] == [5, 6]
    assert (rig.in_flight(SPECULATIVE), rig.desk.rules.leave_at) == (3, 2)
    rig.finish(running)
    assert rig.in_flight(SPECULATIVE) == 0


def test_a_reload_with_another_url_begins_a_new_book_and_the_old_one_counts_on(rig: Rig) -> None:
    running = rig.assign(weight=3)
    old = rig.desk.backend(SPECULATIVE)
    rig.desk.reload(plan(urls=("http://c", "http://b")))
    new = rig.desk.backend(SPECULATIVE)
    assert (new.url, rig.in_flight(SPECULATIVE), old.book.in_flight) == ("http://c", 0, 3)
    assert old.book in rig.desk.ledger.books
    rig.finish(running)
    assert old.book.in_flight == 0
    assert old.book not in rig.desk.ledger.books


def test_backends_that_change_places_take_their_counts_along(rig: Rig) -> None:
    rig.assign(weight=3, asked=SPECULATIVE)
    rig.assign(weight=5, asked=BASELINE)
    rig.desk.reload(plan(urls=("http://b", "http://a")))
    assert (rig.in_flight(SPECULATIVE), rig.in_flight(BASELINE)) == (5, 3)


def test_backends_that_change_places_take_what_is_known_of_them_along_but_no_drain(rig: Rig) -> None:
    first, second = rig.desk.backends
    for backend in (first, second):
        rig.desk.observe_health(backend, Evidence.HIT)
    rig.desk.listen(first)
    rig.desk.unanswered(first)
    rig.desk.drain(BASELINE, draining=True)
    running = rig.assign(asked=BASELINE)
    rig.desk.reload(plan(urls=("http://b", "http://a")))
    speculative, baseline = rig.desk.backends
    assert (speculative.role, baseline.role) == (SPECULATIVE, BASELINE)
    assert (speculative.url, speculative.health.up, speculative.draining) == ("http://b", True, False)
    drains = [(each.role, each.before, each.after) for each in rig.changes if each.kind is ChangeKind.DRAIN]
    assert drains == [(BASELINE, "false", "true"), (SPECULATIVE, "true", "false")], "that it ended is told"
    assert (baseline.url, baseline.health.up, baseline.silent) == ("http://a", True, True)
    rig.desk.tokens_flowed(running.backend)
    rig.desk.spoke(baseline)
    assert rig.changes[-1] == Change(ChangeKind.SILENCE, BASELINE, "true", "false")


def test_a_backend_that_is_dropped_and_taken_in_again_is_counted_truly(rig: Rig) -> None:
    """Case H8: never below zero, never less than what really runs there."""
    old = [rig.assign(asked=SPECULATIVE) for _ in range(20)]
    for _ in range(3):
        rig.desk.observe_health(rig.desk.backend(SPECULATIVE), Evidence.MISS)
    rig.desk.reload(plan(urls=("http://c", "http://b")))
    rig.desk.reload(plan())
    assert rig.in_flight(SPECULATIVE) == 20
    new = [rig.assign(asked=SPECULATIVE) for _ in range(5)]
    for place in old:
        rig.finish(place)
    assert rig.in_flight(SPECULATIVE) == 5
    for place in new:
        rig.finish(place)
    assert rig.in_flight(SPECULATIVE) == 0


def test_what_becomes_of_a_dropped_backend_is_not_announced_as_its_successors(rig: Rig) -> None:
    running = [rig.assign(asked=SPECULATIVE) for _ in range(5)]
    rig.desk.reload(plan(urls=("http://c", "http://b")))
    for place in running:
        rig.finish(place, Event.FAILURE)
    rig.desk.observe_health(running[0].backend, Evidence.MISS)
    assert not rig.changes
    assert rig.desk.backend(SPECULATIVE).circuit.state is CircuitState.CLOSED


def test_an_operators_pin_survives_a_reload(rig: Rig) -> None:
    rig.desk.pin(BASELINE)
    rig.desk.reload(plan(policy=Policy.PINNED, pin=SPECULATIVE))
    assert rig.assign().decision.reason is Reason.OPERATOR_PIN


def test_a_new_policy_holds_from_the_next_request_on(rig: Rig) -> None:
    assert rig.assign().decision.role is SPECULATIVE
    rig.desk.reload(plan(policy=Policy.AUTO, placement=Placement.SHARED, leave_at=1, enter_at=0))
    assert rig.assign().decision.role is BASELINE


def test_a_smaller_retry_reserve_holds_at_once(rig: Rig) -> None:
    rig.desk.reload(plan(retries=RetryRules(0.0, 2.0)))
    assert [rig.desk.may_retry() for _ in range(3)] == [True, True, False]


@given(st.lists(st.sampled_from(["assign", "reload", "finish"]), max_size=60), st.randoms(use_true_random=False))
@settings(max_examples=50)
def test_reloads_in_any_order_lose_no_lease(steps: list[str], chance: Any) -> None:
    rig = Rig()
    held: list[Assignment] = []
    for step in steps:
        if step == "assign":
            held.append(rig.assign(weight=chance.randint(1, 4)))
        elif step == "finish" and held:
            rig.finish(held.pop(chance.randrange(len(held))))
        elif step == "reload":
            first, second = chance.sample(["http://a", "http://b", "http://c"], 2)
            rig.desk.reload(replace(plan(), backends=plan(urls=(first, second)).backends))
        assert sum(book.in_flight for book in rig.desk.ledger.books) == sum(place.lease.weight for place in held)
        names = [book.name for book in rig.desk.ledger.books]
        assert len(names) == len(set(names))

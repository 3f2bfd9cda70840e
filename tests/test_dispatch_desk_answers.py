"""What answers show the desk: what an engine has read, what it refused, and which engine it was after a reload."""

from dataclasses import replace
from typing import Any

import pytest
from fakes.rig import BASELINE, SPECULATIVE, Rig, plan
from fakes.speeds import of_both
from test_dispatch_learning import CURVES, LearningRig

from proxy.dispatch import Assignment
from proxy.dispatch.holders import keep_made
from proxy.model import ROLES, Outcome, Placement, Policy, RequestFacts, Traits, Usage
from proxy.protocol.prefixes import response_state
from proxy.routing.rules import Affinity
from proxy.state.settled import MAX_REMEMBERED

ROUTE = "/v1/chat/completions"
# Alone the one is twice as fast, and it can give half as much.
APART = of_both({1: 100.0, 8: 200.0, 32: 220.0}, {1: 50.0, 8: 300.0, 32: 900.0})
LONG = Traits(prompt_bytes=9 * 2048, prefix=tuple(range(1, 10)))


def placed(rig: Rig, traits: Traits) -> Assignment:
    place = rig.desk.assign(traits, "id", ROUTE)
    assert isinstance(place, Assignment)
    return place


def facts(place: Assignment, traits: Traits, usage: Usage) -> RequestFacts:
    told = RequestFacts("id", ROUTE, "POST", Outcome.FINISHED, 200, place.decision, traits)
    return told._replace(usage=usage, url=place.backend.url)


# ---------------------------------------------------------------- refused

SHORT = Traits(prompt_bytes=400)


def flooded(rig: Rig, seconds: int, *, refused: bool) -> None:
    """Twenty requests a second, each answered within a hundredth of one."""
    for _ in range(20 * seconds):
        place = placed(rig, SHORT)
        rig.now_s += 0.01
        if refused:
            rig.desk.withdraw(place, SHORT, ROUTE)
        rig.finish(place)
        rig.now_s += 0.04


def test_requests_that_an_engine_refuses_are_no_demand_and_turn_no_policy() -> None:
    turned = []
    for refused in (False, True):
        rig = Rig(policy=Policy.CONSOLIDATE, placement=Placement.SHARED, curves=APART, smoothing_s=2.0)
        assert rig.desk.regime.role is SPECULATIVE
        flooded(rig, 90, refused=refused)
        turned.append(rig.desk.regime.role)
        if refused:
            assert rig.desk.regime.demand.tok_s == 0.0
    assert turned == [BASELINE, SPECULATIVE], "the flood itself would have turned it"


@pytest.mark.parametrize("refused", [False, True])
def test_a_burst_that_an_engine_refuses_turns_no_policy_before_it_does(refused: bool) -> None:
    rig = Rig(policy=Policy.CONSOLIDATE, placement=Placement.SHARED, curves=APART, smoothing_s=2.0)
    rig.finish(placed(rig, SHORT))
    burst = []
    for _ in range(200):
        burst.append(placed(rig, SHORT))
        rig.now_s += 0.002
    assert rig.desk.regime.demand.tok_s > 3 * 900.0, "far more than either can give"
    for place in burst:
        if refused:
            rig.desk.withdraw(place, SHORT, ROUTE)
            rig.finish(place)
        rig.now_s += 0.002
    for _ in range(20):
        rig.now_s += 0.25
        rig.desk.follow()
    assert rig.desk.regime.role is (SPECULATIVE if refused else BASELINE)


def test_what_a_refused_request_asked_for_is_taken_from_the_demand_of_the_others_alone() -> None:
    rigs = [Rig(policy=Policy.MARGINAL, curves=APART, smoothing_s=2.0) for _ in range(2)]
    for rig in rigs:
        for _ in range(4):
            rig.finish(placed(rig, Traits(prompt_bytes=4000, max_tokens=100)))
            rig.now_s += 1.0
    flooded(rigs[0], 3, refused=True)
    rigs[1].now_s = rigs[0].now_s
    for rig in rigs:
        rig.desk.follow()
    assert rigs[0].desk.regime.demand[:3] == pytest.approx(rigs[1].desk.regime.demand[:3], rel=1e-6)


def test_a_request_that_moved_before_it_was_refused_is_taken_back_as_it_was_first_decided() -> None:
    rig = Rig(policy=Policy.MARGINAL, curves=APART, smoothing_s=2.0)
    first = placed(rig, SHORT)
    rig.now_s += 2.0
    rig.finish(first)
    second = rig.desk.assign(SHORT, "id", ROUTE, failed=first.backend, attempt=2)
    assert isinstance(second, Assignment)
    rig.now_s += 1.0
    rig.desk.withdraw(first, SHORT, ROUTE)
    assert rig.desk.regime.demand[:3] == (0.0, 0.0, 0.0)


# ---------------------------------------------------------------- taken


def test_prompts_that_no_engine_has_read_push_nothing_off_a_shelf() -> None:
    rig = Rig(affinity=Affinity(cache_tokens=20 * 512))
    shelf = rig.desk.backend(SPECULATIVE).shelf
    rig.desk.taken(placed(rig, LONG), LONG)
    for number in range(50):
        other = Traits(prompt_bytes=9 * 2048, prefix=tuple(range(100 * number + 100, 100 * number + 109)))
        rig.finish(placed(rig, other))
    assert shelf.held(LONG.prefix) == 9
    rig.desk.taken(placed(rig, other), other)
    assert shelf.held(other.prefix) == 9


# ---------------------------------------------------------------- how long answers are


def test_how_long_an_answer_was_counts_once_those_asked_before_it_have_ended_on_either_engine() -> None:
    rig = Rig(policy=Policy.OVERFLOW, leave_at=1, enter_at=0)
    expected = [rig.desk.answers.expected(ROUTE)]
    places = []
    for _ in range(3):
        places.append(placed(rig, SHORT))
        rig.now_s += 1.0
    assert [place.backend.role for place in places] == [SPECULATIVE, BASELINE, BASELINE]
    for place in (places[1], places[0], places[2]):
        rig.finish(place)
        rig.desk.heard(facts(place, SHORT, Usage(100, 16)))
        expected.append(rig.desk.answers.expected(ROUTE))
    assert expected[0] == expected[1] > expected[2] > expected[3]


# ---------------------------------------------------------------- after a reload


def swapped(rig: Rig) -> None:
    """The two urls change places."""
    old = rig.desk.plan
    first, second = old.backends
    rig.desk.reload(replace(old, backends=(replace(first, url=second.url), replace(second, url=first.url))))


def test_what_an_engine_holds_goes_with_its_url_when_two_change_places() -> None:
    rig = Rig(affinity=Affinity())
    place = placed(rig, LONG)
    rig.desk.taken(place, LONG)
    keep_made(rig.desk, place, "resp_1")
    assert (place.backend.role, rig.desk.holder(response_state("resp_1"))) == (SPECULATIVE, SPECULATIVE)
    swapped(rig)
    assert [rig.desk.backend(role).shelf.held(LONG.prefix) for role in ROLES] == [0, 9]
    assert rig.desk.holder(response_state("resp_1")) is BASELINE


def test_an_answer_under_way_is_booked_to_the_engine_that_gave_it_when_two_change_places() -> None:
    rig, state = Rig(affinity=Affinity()), response_state("resp_2")
    asks = LONG._replace(state=state)
    rig.desk.taken(placed(rig, LONG), LONG)
    place = placed(rig, asks)
    rig.desk.taken(place, asks)
    swapped(rig)
    rig.finish(place)
    speculative, baseline = (rig.desk.backend(role).shelf for role in ROLES)
    # It says at first that it caches, and then that it had nothing of what was believed to be there.
    for cached in (4000, 0, 0, 0):
        rig.desk.heard(facts(place, asks, Usage(4608, 10, cached)))
    assert speculative.room_tokens > baseline.room_tokens
    assert rig.desk.holder(state) is BASELINE


def test_an_answer_of_an_engine_that_is_no_backend_any_more_is_booked_to_none() -> None:
    rig, state = Rig(affinity=Affinity()), response_state("resp_3")
    asks = LONG._replace(state=state)
    place = placed(rig, asks)
    rig.desk.reload(replace(rig.desk.plan, backends=plan(urls=("http://c", "http://b")).backends))
    rig.finish(place)
    rig.desk.heard(facts(place, asks, Usage(4608, 10, 4000)))
    assert rig.desk.holder(state) is None


@pytest.mark.parametrize("role", ROLES)
def test_an_answer_from_before_two_changed_places_teaches_nothing_of_either(role: Any) -> None:
    """Its speed is that of the engine which has the other role now."""
    rig = LearningRig()
    places = [rig.place() for _ in range(40)]
    swapped(rig)
    assert rig.desk.learning is not None
    before = rig.desk.learning.learner.known_s(role, 1)
    for place in places:
        rig.answer(place, 3.0)
    assert rig.desk.learning.learner.known_s(role, 1) == before
    assert rig.desk.rules.curves is CURVES


def test_as_many_ends_are_remembered_as_decisions() -> None:
    rig = Rig()
    for number in range(MAX_REMEMBERED + 1):
        rig.finish(rig.assign())
        rig.desk.heard(RequestFacts(str(number), ROUTE, "POST", Outcome.FINISHED, 200, None, Traits()))
    assert (len(rig.desk.ring), len(rig.desk.settled)) == (MAX_REMEMBERED, MAX_REMEMBERED)
    assert rig.desk.settled.of("0") is None
    assert rig.desk.settled.of("1") is not None

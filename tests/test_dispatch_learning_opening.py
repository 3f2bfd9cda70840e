"""The desk that learns on shared GPUs, with its first requests: where curves do not tell, speculation has them."""

from collections import deque
from collections.abc import Callable
from dataclasses import replace

import pytest
from fakes.rig import BASELINE, SPECULATIVE, plan
from test_dispatch_learning import CURVES, FLAT, LearningRig, regimes

from proxy.dispatch import Assignment, Desk
from proxy.model import Outcome, Placement, Policy, Role
from proxy.routing.curves import Curves


def opened(slower: float, *, seconds: int = 8, places: int = 8) -> LearningRig:
    """A desk on shared GPUs whose curves do not tell, with its first requests, and a speculative engine that steps."""
    rig = LearningRig(Policy.CONSOLIDATE, FLAT, placement=Placement.SHARED)
    assert {rig.place().backend.role for _ in range(places)} == {SPECULATIVE}
    rig.poll(SPECULATIVE, 8, slower=slower, seconds=seconds)
    return rig


def test_where_curves_do_not_tell_speculation_has_the_first_requests_and_is_left_once_it_is_the_slower_one() -> None:
    rig = opened(slower=1.5)
    assert regimes(rig) == [BASELINE]
    learning = rig.desk.learning
    assert learning is not None
    summary = learning.summary(rig.desk.backends, rig.now_s)
    assert (summary["trials"], summary["tries"]) == (1, None)


def test_what_is_faster_than_the_others_curve_keeps_what_it_has_and_nothing_else_is_tried() -> None:
    rig = opened(slower=0.6, seconds=40)
    learning = rig.desk.learning
    assert learning is not None and learning.tries.now is not None
    rig.poll(SPECULATIVE, 8, slower=0.6, seconds=200)
    assert not regimes(rig)
    assert (learning.tries.now, learning.tries.made) == (None, 1)


def test_the_first_requests_are_watched_from_when_they_come() -> None:
    rig = LearningRig(Policy.CONSOLIDATE, FLAT, placement=Placement.SHARED)
    rig.now_s += 600.0
    for _ in range(8):
        rig.place()
    rig.poll(SPECULATIVE, 8, slower=1.5, seconds=10)
    assert regimes(rig) == [BASELINE]


@pytest.mark.parametrize("stop", [lambda desk: desk.pin(SPECULATIVE), lambda desk: desk.drain(BASELINE, draining=True)])
def test_a_pin_or_a_lost_backend_makes_an_end_of_watching_and_nothing_turns(stop: Callable[[Desk], None]) -> None:
    rig = opened(slower=1.0, seconds=3)
    stop(rig.desk)
    rig.poll(SPECULATIVE, 8, slower=2.0, seconds=20)
    assert not regimes(rig)
    assert rig.desk.learning is not None and rig.desk.learning.tries.now is None


def test_who_was_favoured_first_and_is_full_is_left() -> None:
    rig = LearningRig(Policy.CONSOLIDATE, FLAT, placement=Placement.SHARED)
    first, second = rig.desk.plan.backends
    rig.desk.reload(replace(rig.desk.plan, backends=(replace(first, max_in_flight=8), second)))
    for _ in range(8):
        rig.place()
    rig.poll(SPECULATIVE, 8, slower=1.0, seconds=5)
    assert regimes(rig) == [BASELINE]


@pytest.mark.parametrize(("a_second", "tried"), [(4, 0), (12, 1)])
def test_where_the_first_one_cannot_carry_the_demand_the_one_that_nobody_has_seen_is_tried_once(
    a_second: int, tried: int
) -> None:
    rig = LearningRig(Policy.CONSOLIDATE, FLAT, placement=Placement.SHARED)
    there: dict[Role, deque[Assignment]] = {SPECULATIVE: deque(), BASELINE: deque()}
    for second in range(200):
        for place in (rig.place() for _ in range(a_second)):
            there[place.backend.role].append(place)
        # The baseline is never polled, so that nothing is seen of it.
        for role, most in ((SPECULATIVE, 600 if tried else 40), (BASELINE, 300 if second < 160 else 0)):
            while len(there[role]) > most:
                rig.desk.settle(there[role].popleft(), Outcome.FINISHED)
        rig.poll(SPECULATIVE, rig.desk.backend(SPECULATIVE).book.in_flight, slower=0.6)
    assert regimes(rig) == [BASELINE, SPECULATIVE][: 2 * tried]
    assert rig.desk.learning is not None and rig.desk.learning.tries.made == 1 + tried


@pytest.mark.parametrize("curves", [FLAT, CURVES])
def test_without_learning_the_first_role_is_that_of_the_curves(curves: Curves) -> None:
    given = plan(policy=Policy.CONSOLIDATE, curves=curves, placement=Placement.SHARED)
    unlearned, learned = (Desk(replace(given, learns=each), lambda: 0.0).regime.role for each in (False, True))
    assert (unlearned is learned) == (curves is CURVES)

"""Which answers are judged for harm: those that curves sent somewhere unforced. All are evidence of speed."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from fakes.rig import BASELINE, SPECULATIVE
from test_dispatch_learning import LearningRig

from proxy.dispatch import Assignment
from proxy.model import ROLES, Outcome, Reason, Role, Traits
from proxy.routing.breaker import Event
from proxy.routing.policy import RequestRule, RuleKind

PLAIN = Traits(prompt_bytes=4096)
STATE = 7

Place = Callable[[LearningRig], Assignment]
"""Gives a request its place in circumstances of its own."""


def taught() -> LearningRig:
    """A desk that has learned that speculative takes twice as long as measured, and goes by it."""
    rig = LearningRig()
    rig.poll(BASELINE, 1, slower=1.0, seconds=4)
    rig.poll(SPECULATIVE, 1, slower=2.0, seconds=6)
    assert rig.desk.rules.learned
    return rig


def ask(rig: LearningRig, traits: Traits = PLAIN, failed: Role | None = None) -> Assignment:
    before = None if failed is None else rig.desk.backend(failed)
    place = rig.desk.assign(traits, "id", "/v1/completions", failed=before)
    assert isinstance(place, Assignment)
    return place


def pinned(rig: LearningRig, role: Role = SPECULATIVE) -> Assignment:
    rig.desk.pin(role)
    place = ask(rig)
    rig.desk.pin(None)
    return place


def pinned_where_it_would_have_gone(rig: LearningRig) -> Assignment:
    return pinned(rig, BASELINE)


def asked_by_header(rig: LearningRig) -> Assignment:
    rig.desk.rules = replace(rig.desk.rules, allow_header=True)
    return ask(rig, PLAIN._replace(asked=SPECULATIVE))


def ruled(rig: LearningRig) -> Assignment:
    rig.desk.rules = replace(rig.desk.rules, request_rules=(RequestRule(RuleKind.LONG_PROMPT, SPECULATIVE, 1),))
    return ask(rig)


def bound_by_state(rig: LearningRig) -> Assignment:
    rig.desk.holdings.made(STATE, rig.desk.backend(SPECULATIVE).shelf)
    return ask(rig, PLAIN._replace(state=STATE))


def without_the_better_one(rig: LearningRig) -> Assignment:
    rig.desk.drain(BASELINE, draining=True)
    return ask(rig)


def without_the_worse_one(rig: LearningRig) -> Assignment:
    rig.desk.drain(SPECULATIVE, draining=True)
    return ask(rig)


def beside_a_full_one(rig: LearningRig) -> Assignment:
    rig.desk.backend(SPECULATIVE).limit = 1
    rig.desk.backend(SPECULATIVE).known = None
    pinned(rig)
    return ask(rig)


def instead_of_a_full_one(rig: LearningRig) -> Assignment:
    rig.desk.backend(BASELINE).limit = 1
    rig.desk.backend(BASELINE).known = None
    pinned(rig, BASELINE)
    return ask(rig)


def after_a_failure(rig: LearningRig) -> Assignment:
    return ask(rig, failed=BASELINE)


def beside_one_that_fails(rig: LearningRig) -> Assignment:
    failing = pinned(rig)
    rig.desk.judge(failing, Event.FAILURE)
    rig.desk.settle(failing, Outcome.FAILED_BEFORE_COMMIT)
    return ask(rig)


def probing(rig: LearningRig) -> Assignment:
    assert rig.desk.learning is not None
    rig.desk.learning.probes.dear = frozenset(ROLES)
    return ask(rig)


def tried(rig: LearningRig) -> Assignment:
    assert rig.desk.learning is not None
    rig.desk.learning.tries.begin(BASELINE, 1.0, rig.now_s, 0.0)
    place = ask(rig)
    rig.desk.learning.tries.end(rig.now_s, 0.0)
    return place


def judged(rig: LearningRig, place: Assignment, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """How many answers become evidence of speed, and how many are compared with what the measured curves would have
    made of their requests, of the one that ends now."""
    assert rig.desk.learning is not None
    harm, evidence, compared = rig.desk.learning.harm, list[Any](), list[Any]()
    monkeypatch.setattr(harm, "answered", lambda *told: evidence.append(told))
    monkeypatch.setattr(harm, "compare", lambda *told: compared.append(told))
    rig.answer(place, 2.0 if place.backend.role is SPECULATIVE else 1.0)
    return len(evidence), len(compared)


@pytest.mark.parametrize(
    ("circumstances", "role", "reason"),
    [
        (pinned, SPECULATIVE, Reason.OPERATOR_PIN),
        (pinned_where_it_would_have_gone, BASELINE, Reason.OPERATOR_PIN),
        (asked_by_header, SPECULATIVE, Reason.HEADER),
        (ruled, SPECULATIVE, Reason.RULE),
        (bound_by_state, SPECULATIVE, Reason.STATE),
        (without_the_better_one, SPECULATIVE, Reason.ONLY_ELIGIBLE),
        (without_the_worse_one, BASELINE, Reason.CHEAPER),
        (beside_a_full_one, BASELINE, Reason.CHEAPER),
        (instead_of_a_full_one, SPECULATIVE, Reason.OTHER_FULL),
        (after_a_failure, SPECULATIVE, Reason.FAILOVER),
        (beside_one_that_fails, BASELINE, Reason.CHEAPER),
        (probing, SPECULATIVE, Reason.PROBE),
        (tried, BASELINE, Reason.CHEAPER),
    ],
)
def test_what_curves_did_not_choose_is_evidence_of_speed_and_not_judged(
    circumstances: Place, role: Role, reason: Reason, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = taught()
    place = circumstances(rig)
    assert (place.decision.role, place.decision.reason) == (role, reason)
    assert judged(rig, place, monkeypatch) == (1, 0)


def test_what_curves_chose_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = taught()
    place = ask(rig)
    assert (place.decision.role, place.decision.reason) == (BASELINE, Reason.CHEAPER)
    assert judged(rig, place, monkeypatch) == (1, 1)


def test_what_happens_to_the_backends_after_a_choice_leaves_it_one(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = taught()
    place = ask(rig)
    rig.desk.pin(BASELINE)
    rig.desk.drain(SPECULATIVE, draining=True)
    assert judged(rig, place, monkeypatch) == (1, 1)


def test_after_a_trial_choices_are_judged_again(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = taught()
    rig.desk.settle(tried(rig), Outcome.FINISHED)
    rig.now_s += 1.0
    assert judged(rig, ask(rig), monkeypatch) == (1, 1)

"""The sentence about now names the role that a plain request would get, and the reason with its numbers."""

from dataclasses import replace
from typing import Any

import pytest
from fakes.rig import Rig
from fakes.speeds import of_both

from proxy.model import Placement, Policy, Regime, Role, Traits
from proxy.routing import policy
from proxy.routing.health import Evidence
from proxy.routing.policy import RequestRule, RuleKind
from proxy.watch.now import sentence

SPECULATIVE, BASELINE = Role
SPEEDS = of_both({1: 100, 8: 300, 64: 400}, {1: 60, 8: 320, 64: 1200})


def told(rig: Rig) -> str:
    desk = rig.desk
    return sentence(desk.rules, desk.regime, desk.snapshot(), desk.backends, 256.0)


def placed(rig: Rig, speculative: int = 0, baseline: int = 0) -> Rig:
    for role, count in ((SPECULATIVE, speculative), (BASELINE, baseline)):
        if count:
            rig.assign(count, asked=role)
    return rig


def curved(**rules: Any) -> Rig:
    return Rig(curves=SPEEDS, **rules)


def test_overflow_tells_how_much_is_left_of_leave_at() -> None:
    rig = placed(Rig(policy=Policy.OVERFLOW), 3)
    assert told(rig) == "Requests go to speculative: 3 in flight there, below leave_at 9."
    placed(rig, 6)
    assert told(rig) == "Requests go to baseline: speculative has 9 in flight, at its leave_at 9."


def test_threshold_tells_the_smoothed_count_beside_the_bound_that_is_next() -> None:
    rig = placed(Rig(policy=Policy.THRESHOLD), 3)
    rig.now_s += 60.0
    assert told(rig) == "Requests go to speculative: 3.0 in flight (smoothed), below leave_at 9."
    placed(rig, 0, 12)
    rig.now_s += 60.0
    assert told(rig) == "Requests go to baseline: 15.0 in flight (smoothed), not yet down to enter_at 5."


def test_threshold_tells_when_only_the_dwell_holds_it() -> None:
    rig = Rig(policy=Policy.THRESHOLD, min_dwell_s=300.0)
    placed(rig, 1)
    rig.desk.regime = Regime(BASELINE, rig.now_s, 1.0, rig.now_s, 1.0)
    assert told(rig) == "Requests go to baseline: 1.0 in flight (smoothed), and the last change is less than 300 s ago."


def test_marginal_tells_what_one_more_costs_on_either() -> None:
    text = told(placed(curved(policy=Policy.MARGINAL), 3, 1))
    assert text.startswith("Requests go to ")
    assert "one more would delay all by " in text
    assert "(3 and 1 in flight)" in text


def test_consolidate_tells_the_demand() -> None:
    text = told(curved(policy=Policy.CONSOLIDATE, placement=Placement.SHARED))
    assert "output tok/s sooner, and both share the same GPUs" in text


@pytest.mark.parametrize("role", Role)
def test_a_pin_is_told_before_all_else(role: Role) -> None:
    rig = placed(Rig(), 20)
    rig.desk.pin(role)
    other = role.other
    assert told(rig) == f"Requests go to {role}: an operator pinned everything there, and {other} is only its failover."


def test_policy_pinned_is_told() -> None:
    text = told(Rig(policy=Policy.PINNED, pin=BASELINE))
    assert text == "Requests go to baseline: the policy is pinned, and speculative is only its failover."


def test_a_rule_that_takes_every_request_is_told() -> None:
    rule = RequestRule(RuleKind.LONG_PROMPT, BASELINE, 0)
    assert told(Rig(request_rules=(rule,))) == "Requests go to baseline: a rule of routing.rules sends them there."


def test_a_backend_that_takes_nothing_is_told_with_why() -> None:
    drained = Rig()
    drained.desk.drain(SPECULATIVE, draining=True)
    assert told(drained) == "Requests go to baseline: speculative is being drained."
    down = Rig()
    down.desk.observe_health(down.desk.backend(SPECULATIVE), Evidence.REFUSED)
    assert told(down) == "Requests go to baseline: speculative is down."
    broken = Rig()
    broken.open_circuit(SPECULATIVE)
    assert told(broken) == "Requests go to baseline: speculative has its circuit open."


def test_with_nobody_left_it_says_so() -> None:
    rig = Rig()
    for role in Role:
        rig.desk.drain(role, draining=True)
    assert told(rig) == (
        "No backend can take requests, speculative is being drained and baseline is being drained: "
        "they are sent to speculative all the same, and may fail."
    )


def test_with_no_room_anywhere_it_says_that_requests_wait() -> None:
    rig = placed(Rig(limits=(2, 1)), 2, 1)
    assert told(rig) == "Requests wait: there is no room (speculative 2 of 2, baseline 1 of 1)."


def test_a_full_one_and_one_that_has_just_come_back_are_told() -> None:
    full = placed(Rig(limits=(2, None)), 2)
    assert told(full) == "Requests go to baseline: speculative is full."
    back = Rig()
    back.desk.backend(SPECULATIVE).recovered_at_s = back.now_s
    placed(back, 2)
    assert told(back) == "Requests go to baseline: speculative has just come back and gets its share bit by bit."


@pytest.mark.parametrize("name", Policy)
@pytest.mark.parametrize("counts", [(0, 0), (4, 0), (0, 30), (30, 30)])
def test_the_role_is_the_one_that_a_plain_request_gets(name: Policy, counts: tuple[int, int]) -> None:
    rig = placed(curved(policy=name), *counts)
    desk = rig.desk
    decided = policy.decide(desk.rules, desk.regime, desk.snapshot(), Traits(), expected_tokens=256.0)
    assert told(rig).startswith(f"Requests go to {decided.role}: ")


def test_telling_changes_nothing() -> None:
    rig = placed(Rig(policy=Policy.THRESHOLD), 20)
    rig.now_s += 60.0
    before = rig.desk.regime
    told(rig)
    assert rig.desk.regime == before
    assert replace(rig.desk.rules) == rig.desk.rules

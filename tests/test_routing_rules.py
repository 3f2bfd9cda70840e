"""Request rules and the meaning of `auto`."""

import pytest
from fakes.speeds import bucket, curves, of_both

from proxy.model import Placement, Policy, Role, Traits
from proxy.routing.curves import Curves
from proxy.routing.rules import RequestRule, RuleKind, Rules

WHOLE = of_both({1: 90.0}, {1: 60.0})
ONE_SIDED = curves(bucket({1: 90.0}, {1: 60.0}), bucket({1: 90.0}, None, 9000))


@pytest.mark.parametrize(
    ("placement", "measured", "policy"),
    [
        (Placement.SEPARATE, None, Policy.OVERFLOW),
        (Placement.SEPARATE, ONE_SIDED, Policy.OVERFLOW),
        (Placement.SEPARATE, WHOLE, Policy.MARGINAL),
        (Placement.SHARED, None, Policy.THRESHOLD),
        (Placement.SHARED, ONE_SIDED, Policy.THRESHOLD),
        (Placement.SHARED, WHOLE, Policy.CONSOLIDATE),
    ],
)
def test_auto_resolves_by_placement_and_by_what_was_measured(
    placement: Placement, measured: Curves | None, policy: Policy
) -> None:
    assert Rules(placement=placement, curves=measured).effective_policy is policy


@pytest.mark.parametrize("policy", [policy for policy in Policy if policy is not Policy.AUTO])
@pytest.mark.parametrize("placement", Placement)
def test_a_named_policy_is_kept_on_any_placement(policy: Policy, placement: Placement) -> None:
    assert Rules(policy=policy, placement=placement, curves=WHOLE).effective_policy is policy


@pytest.mark.parametrize("measured", [None, ONE_SIDED])
def test_a_policy_without_the_speeds_of_both_is_the_one_that_needs_none(measured: Curves | None) -> None:
    assert Rules(Policy.MARGINAL, curves=measured).effective_policy is Policy.OVERFLOW
    assert Rules(Policy.CONSOLIDATE, curves=measured).effective_policy is Policy.THRESHOLD


@pytest.mark.parametrize(("min_dwell_s", "dwell_s"), [(0.0, 60.0), (90.0, 90.0)])
def test_consolidate_dwells_for_a_minute_at_least(min_dwell_s: float, dwell_s: float) -> None:
    assert Rules(Policy.CONSOLIDATE, curves=WHOLE, min_dwell_s=min_dwell_s).dwell_s == dwell_s
    assert Rules(Policy.CONSOLIDATE, min_dwell_s=min_dwell_s).dwell_s == min_dwell_s


@pytest.mark.parametrize(
    ("kind", "traits", "matches"),
    [
        (RuleKind.CONSTRAINED, Traits(constrained=True), True),
        (RuleKind.CONSTRAINED, Traits(session=True, prompt_bytes=10**9), False),
        (RuleKind.SESSION, Traits(session=True), True),
        (RuleKind.SESSION, Traits(constrained=True, prompt_bytes=10**9), False),
        (RuleKind.LONG_PROMPT, Traits(prompt_bytes=1000), True),
        (RuleKind.LONG_PROMPT, Traits(prompt_bytes=999, session=True, constrained=True), False),
    ],
)
def test_a_request_rule_matches_its_own_kind_only(kind: RuleKind, traits: Traits, matches: bool) -> None:
    assert RequestRule(kind, Role.BASELINE, min_prompt_bytes=1000).matches(traits) is matches

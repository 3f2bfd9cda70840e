"""Request rules and the meaning of `auto`."""

import pytest

from proxy.model import Placement, Policy, Role, Traits
from proxy.routing.rules import RequestRule, RuleKind, Rules


@pytest.mark.parametrize(
    ("placement", "policy"), [(Placement.SEPARATE, Policy.OVERFLOW), (Placement.SHARED, Policy.THRESHOLD)]
)
def test_auto_resolves_by_placement(placement: Placement, policy: Policy) -> None:
    assert Rules(placement=placement).effective_policy is policy


@pytest.mark.parametrize("policy", [policy for policy in Policy if policy is not Policy.AUTO])
@pytest.mark.parametrize("placement", Placement)
def test_a_named_policy_is_kept_on_any_placement(policy: Policy, placement: Placement) -> None:
    assert Rules(policy=policy, placement=placement).effective_policy is policy


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

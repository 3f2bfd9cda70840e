"""The keys of `routing`: rules are strict and fit together, and what is left out follows from the rest."""

import pytest

from proxy.config import InvalidConfig, from_mapping
from proxy.config.routing_keys import Rule
from proxy.model import Role
from proxy.routing.policy import Goals, RequestRule, RuleKind


@pytest.mark.parametrize(
    "values",
    [
        None,
        {"when": "session", "role": "Baseline"},
        {"when": "long_prompt", "role": "baseline"},
        {"when": "session", "role": "baseline", "min_prompt_bytes": 5},
    ],
)
def test_a_rule_that_is_not_whole_is_refused(values: object) -> None:
    with pytest.raises(ValueError, match="Rule"):
        Rule.model_validate(values)


def test_a_rule_says_the_same_to_routing() -> None:
    rule = Rule.model_validate({"when": "long_prompt", "role": "baseline", "min_prompt_bytes": 5})
    assert rule.request_rule() == RequestRule(RuleKind.LONG_PROMPT, Role.BASELINE, 5)


@pytest.mark.parametrize(
    ("slo", "goals"),
    [(None, None), ({"ttft_s": 2}, Goals(ttft_s=2.0)), ({"ttft_s": 2, "tpot_s": 0.03}, Goals(2.0, 0.03))],
)
def test_goals_reach_routing_where_there_are_any(slo: object, goals: Goals | None) -> None:
    urls = {"speculative": {"url": "http://a:1"}, "baseline": {"url": "http://a:2"}}
    assert from_mapping({"backends": urls, "routing": {"slo": slo}}).rules().goals == goals


@pytest.mark.parametrize(("leave_at", "enters_at"), [(1, 0), (2, 1), (3, 2), (4, 2), (9, 5), (40, 20)])
def test_the_lower_threshold_is_half_the_upper_where_it_is_not_given(leave_at: int, enters_at: int) -> None:
    urls = {"speculative": {"url": "http://a:1"}, "baseline": {"url": "http://a:2"}}
    chosen = from_mapping({"backends": urls, "routing": {"leave_at": leave_at}})
    assert chosen.rules().enter_at == enters_at


URLS = {"speculative": {"url": "http://a:1"}, "baseline": {"url": "http://a:2"}}


@pytest.mark.parametrize(
    ("said", "learns"),
    [(None, True), (True, True), (False, False), ({"enabled": False}, False), ({"state_file": "x.json"}, True)],
)
def test_learning_is_on_unless_it_is_turned_off(said: object, learns: bool) -> None:
    assert from_mapping({"backends": URLS, "routing": {"learn": said}}).routing.learn.enabled is learns


@pytest.mark.parametrize("said", ["false", 0, {"enabled": "yes"}, {"on": True}])
def test_what_is_no_switch_is_refused(said: object) -> None:
    with pytest.raises(InvalidConfig, match="learn"):
        from_mapping({"backends": URLS, "routing": {"learn": said}})

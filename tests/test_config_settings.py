"""The settings models: strict, frozen, and turned into the rules of the pure floors."""

import pytest

from proxy.config import Settings, from_mapping
from proxy.config.sections import Section
from proxy.config.settings import Backend, Listen, Timeouts
from proxy.model import Placement, Policy, Role
from proxy.routing.breaker import BreakerRules
from proxy.routing.health import HealthRules
from proxy.routing.policy import Affinity, RequestRule, RuleKind, Rules
from proxy.routing.retries import RetryRules


def settings(**sections: object) -> Settings:
    return from_mapping(
        {"backends": {"speculative": {"url": "http://a:1"}, "baseline": {"url": "http://b:2"}}, **sections}
    )


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        settings().listen.port = 1  # type: ignore[misc]


def test_backend_is_found_by_its_role() -> None:
    backends = settings().backends
    assert [backends.of(role).url for role in (Role.SPECULATIVE, Role.BASELINE)] == ["http://a:1", "http://b:2"]


def test_defaults_are_the_defaults_of_the_rules() -> None:
    assert settings().rules() == Rules(affinity=Affinity())
    assert settings().breaker_rules() == BreakerRules()
    assert settings().health_rules() == HealthRules()
    assert settings().retry_rules() == RetryRules()


def test_rules_carry_the_settings() -> None:
    chosen = settings(
        placement="shared",
        routing={
            **{"policy": "threshold", "leave_at": 12, "enter_at": 3, "min_dwell_s": 4, "smoothing_s": 0},
            **{"pin": "speculative", "allow_header": True},
            "affinity": {"min_cached_tokens": 4096, "cache_tokens": 100_000},
            "rules": [
                {"when": "long_prompt", "role": "baseline", "min_prompt_bytes": 100},
                {"when": "session", "role": "speculative"},
            ],
        },
        circuit={"max_failures": 7, "open_s": 3, "max_probes": 2},
        health={"max_misses": 4, "min_hits": 1},
        retries={"max_ratio": 0.5, "reserve": 3},
    )
    requests = (RequestRule(RuleKind.LONG_PROMPT, Role.BASELINE, 100), RequestRule(RuleKind.SESSION, Role.SPECULATIVE))
    assert chosen.rules() == Rules(
        policy=Policy.THRESHOLD,
        placement=Placement.SHARED,
        leave_at=12,
        enter_at=3,
        min_dwell_s=4.0,
        smoothing_s=0.0,
        pin=Role.SPECULATIVE,
        allow_header=True,
        request_rules=requests,
        affinity=Affinity(4096, 100_000),
    )
    assert chosen.breaker_rules() == BreakerRules(7, 3.0, 2)
    assert chosen.health_rules() == HealthRules(4, 1)
    assert chosen.retry_rules() == RetryRules(0.5, 3)


@pytest.mark.parametrize(
    ("section", "values"),
    [
        (Listen, {"port": "1"}),
        (Listen, {"port": True}),
        (Listen, {"port": 1.0}),
        (Listen, {"prot": 1}),
        (Timeouts, {"stall_s": "1"}),
        (Timeouts, {"stall_s": True}),
        (Timeouts, {"stall_s": float("nan")}),
        (Timeouts, {"stall_s": float("inf")}),
        (Timeouts, {"stall_s": 0}),
        (Backend, {"url": "http://a:1", "max_in_flight": 0}),
        (Backend, {"url": "http://a:1", "api_key": ""}),
    ],
)
def test_sections_are_strict(section: type[Section], values: object) -> None:
    with pytest.raises(ValueError, match=section.__name__):
        section.model_validate(values)


def test_whole_numbers_of_seconds_are_numbers() -> None:
    assert Timeouts.model_validate({"stall_s": 7}).stall_s == 7.0
